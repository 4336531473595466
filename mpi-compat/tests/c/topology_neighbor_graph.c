/* Neighbourhood collectives on graphs: several edges between two ranks, edges to the rank itself, blocks of any size
   and type.
   ranks 1 2 4 */
#include "check.h"

int main(void) {
    MPI_Comm graph;
    MPI_Datatype spaced;
    int rank, size;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    /* Two edges to the next rank, one to the last but one, one to itself. */
    int far = (rank + 2) % size, near = (rank + 2 * size - 2) % size;
    int to[4] = {next, far, next, rank}, from[4] = {rank, last, near, last}, in[16], out[16];
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 4, from, MPI_UNWEIGHTED, 4, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph));
    for (int i = 0; i < 16; i++) in[i] = -1, out[i] = 100 * rank + i;
    OK(MPI_Neighbor_allgather(out, 2, MPI_INT, in, 2, MPI_INT, graph));
    for (int i = 0; i < 8; i++) CHECK(in[i] == 100 * from[i / 2] + i % 2);
    int counts[4] = {1, 1, 2, 0}, displs[4] = {0, 8, 4, 12};
    for (int i = 0; i < 16; i++) in[i] = -1;
    OK(MPI_Neighbor_allgatherv(out, 1, MPI_INT, in, (int[]){1, 1, 1, 1}, displs, MPI_INT, graph));
    for (int i = 0; i < 4; i++) CHECK(in[displs[i]] == 100 * from[i] && in[displs[i] + 1] == -1);
    if (size == 4) {
        /* Edges differ in their ranks except the two to the next rank, which keep their order. */
        OK(MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, graph));
        CHECK(in[0] == 100 * rank + 3 && in[1] == 100 * last && in[2] == 100 * near + 1 && in[3] == 100 * last + 2);
        int back[4] = {0, 1, 1, 2};
        for (int i = 0; i < 16; i++) in[i] = -1;
        OK(MPI_Neighbor_alltoallv(out, counts, displs, MPI_INT, in, back, displs, MPI_INT, graph));
        CHECK(in[12] == 100 * last + 4 && in[13] == 100 * last + 5 && in[8] == 100 * last && in[4] == 100 * near + 8);
        CHECK(in[0] == -1);
        MPI_Datatype types[4] = {MPI_INT, MPI_INT, MPI_INT, MPI_INT}, theirs[4];
        MPI_Aint bytes[4] = {0, 4, 8, 12}, far_bytes[4] = {0, 16, 32, 48};
        OK(MPI_Type_vector(1, 1, 2, MPI_INT, &spaced));
        OK(MPI_Type_commit(&spaced));
        for (int i = 0; i < 4; i++) theirs[i] = i % 2 ? spaced : MPI_INT;
        for (int i = 0; i < 16; i++) in[i] = -1;
        int ones[4] = {1, 1, 1, 1};
        OK(MPI_Neighbor_alltoallw(out, ones, bytes, types, in, ones, far_bytes, theirs, graph));
        CHECK(in[0] == 100 * rank + 3 && in[4] == 100 * last && in[8] == 100 * near + 1 && in[12] == 100 * last + 2);
        OK(MPI_Type_free(&spaced));
    }
    OK(MPI_Comm_free(&graph));
    return finish();
}
