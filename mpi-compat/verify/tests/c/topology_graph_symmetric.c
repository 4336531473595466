/* A graph with an edge in only one direction is reported at level 2. It may be made, but neighbours cannot exchange
   data over it.
   ranks 3
   level 2
   says VERIFY MPI_GRAPH_CREATE(0): the graph has an edge from 0 to 2 but none in the other direction
   says VERIFY MPI_NEIGHBOR_ALLGATHER(0): edges to 2: 1 in destinations != 0 in sources(2) */
#include "check.h"

int main(void) {
    MPI_Comm graph = MPI_COMM_NULL;
    int ends[3] = {2, 3, 4}, edges[4] = {1, 2, 0, 0}, in = 0, out[2];
    start();
    if (IS_WRONG) edges[3] = 1;
    MPI_Graph_create(MPI_COMM_WORLD, 3, ends, edges, 0, &graph);
    if (graph != MPI_COMM_NULL) {
        handle(graph);
        MPI_Neighbor_allgather(&in, 1, MPI_INT, out, 1, MPI_INT, graph);
        MPI_Comm_free(&graph);
    }
    return finish();
}
