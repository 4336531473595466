/* Collectives with large counts give the same results.
   ranks 3 */
#include "check.h"

int main(void) {
    int rank, size, one, all[3], sums[3] = {1, 2, 3}, got[3];
    MPI_Count counts[3] = {1, 1, 1};
    MPI_Aint displs[3] = {0, 1, 2}, bytes[3] = {0, 4, 8};
    MPI_Datatype types[3] = {MPI_INT, MPI_INT, MPI_INT};
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    one = rank == 1 ? 42 : 0;
    OK(MPI_Bcast_c(&one, 1, MPI_INT, 1, MPI_COMM_WORLD));
    CHECK(one == 42);
    one = 10 + rank;
    OK(MPI_Allgather_c(&one, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD));
    CHECK(all[0] == 10 && all[1] == 11 && all[2] == 12);
    OK(MPI_Allgatherv_c(&one, 1, MPI_INT, all, counts, displs, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Alltoallv_c(all, counts, displs, MPI_INT, got, counts, displs, MPI_INT, MPI_COMM_WORLD));
    CHECK(got[0] == 10 + rank && got[2] == 10 + rank);
    OK(MPI_Alltoallw_c(all, counts, bytes, types, got, counts, bytes, types, MPI_COMM_WORLD));
    CHECK(got[0] == 10 + rank && got[1] == 10 + rank);
    OK(MPI_Alltoall_c(all, 1, MPI_INT, got, 1, MPI_INT, MPI_COMM_WORLD));
    CHECK(got[1] == 10 + rank);
    OK(MPI_Gather_c(&one, 1, MPI_INT, got, 1, MPI_INT, 0, MPI_COMM_WORLD));
    OK(MPI_Gatherv_c(&one, 1, MPI_INT, got, counts, displs, MPI_INT, 0, MPI_COMM_WORLD));
    CHECK(rank > 0 || got[2] == 12);
    OK(MPI_Scatter_c(all, 1, MPI_INT, &one, 1, MPI_INT, 2, MPI_COMM_WORLD));
    OK(MPI_Scatterv_c(all, counts, displs, MPI_INT, &one, 1, MPI_INT, 2, MPI_COMM_WORLD));
    CHECK(one == 10 + rank);
    OK(MPI_Allreduce_c(sums, got, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(got[2] == 9);
    OK(MPI_Reduce_c(sums, got, 3, MPI_INT, MPI_PROD, 0, MPI_COMM_WORLD));
    CHECK(rank > 0 || got[2] == 27);
    OK(MPI_Scan_c(sums, got, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(got[1] == 2 * (rank + 1));
    OK(MPI_Exscan_c(sums, got, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(rank == 0 || got[1] == 2 * rank);
    OK(MPI_Reduce_scatter_c(sums, &one, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(one == 3 * (rank + 1));
    OK(MPI_Reduce_scatter_block_c(sums, &one, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(one == 3 * (rank + 1));
    return finish();
}
