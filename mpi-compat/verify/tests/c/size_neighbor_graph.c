/* Sent sizes must equal received sizes, between the neighbours of a graph with two edges from one rank to another.
   ranks 3
   says VERIFY MPI_NEIGHBOR_ALLTOALLV(0): sendsize[1]=12 > expected recvsize(1)[0]=8 */
#include "check.h"

int main(void) {
    int in[8] = {0}, out[8] = {0}, counts[3] = {1, 1, 1}, places[3] = {0, 2, 4}, other[3] = {1, 1, 1};
    int to[3] = {(0 + 1) % 3, 0, 0}, from[3] = {0, 0, 0};
    MPI_Comm graph;
    start();
    to[0] = to[1] = (rank + 1) % 3;
    from[0] = from[1] = (rank + 2) % 3;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, MPI_UNWEIGHTED, 2, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    handle(graph);
    other[1] = WRONG_AT(0, 2, 1);
    MPI_Neighbor_alltoallv(in, other, places, MPI_INT, out, counts, places, MPI_INT, graph);
    MPI_Comm_free(&graph);
    return finish();
}
