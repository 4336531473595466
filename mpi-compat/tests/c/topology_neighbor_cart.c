/* Neighbourhood collectives on grids: blocks of absent neighbours stay unchanged; with few ranks in a periodic
   dimension a block that is sent down is received from above.
   ranks 1 2 3 4 6 */
#include "check.h"

int main(void) {
    MPI_Comm grid;
    int rank, size, dims[2] = {0, 0}, periods[2] = {1, 0}, n[4], out[8], in[8];
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Dims_create(size, 2, dims));
    OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid));
    MPI_Comm_rank(grid, &rank);
    for (int d = 0; d < 2; d++) OK(MPI_Cart_shift(grid, d, 1, &n[2 * d], &n[2 * d + 1]));
    for (int i = 0; i < 8; i++) in[i] = -1, out[i] = 100 * rank + i;
    OK(MPI_Neighbor_allgather(&rank, 1, MPI_INT, in, 1, MPI_INT, grid));
    for (int i = 0; i < 4; i++) CHECK(in[i] == (n[i] == MPI_PROC_NULL ? -1 : n[i]));
    int counts[4] = {1, 2, 1, 2}, displs[4] = {0, 2, 4, 6}, at[4] = {0, 2, 3, 5};
    for (int i = 0; i < 8; i++) in[i] = -1;
    OK(MPI_Neighbor_alltoall(out, 2, MPI_INT, in, 2, MPI_INT, grid));
    for (int i = 0; i < 8; i++) {
        /* Block i/2 of the neighbour there comes from its block of the other direction. */
        int from = n[i / 2];
        CHECK(in[i] == (from == MPI_PROC_NULL ? -1 : 100 * from + 2 * (i / 2 ^ 1) + i % 2));
    }
    /* In both dimensions, blocks of one element are sent down, and blocks of two up. */
    int back[4] = {2, 1, 2, 1};
    for (int i = 0; i < 8; i++) in[i] = -1;
    OK(MPI_Neighbor_alltoallv(out, counts, displs, MPI_INT, in, back, at, MPI_INT, grid));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < back[i]; j++)
            CHECK(in[at[i] + j] == (n[i] == MPI_PROC_NULL ? -1 : 100 * n[i] + displs[i ^ 1] + j));
    CHECK(in[6] == -1);
    OK(MPI_Comm_free(&grid));
    return finish();
}
