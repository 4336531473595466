/* Each edge of a graph goes both ways.
   ranks 3
   says VERIFY MPI_GRAPH_CREATE(0): the graph has an edge from 0 to 2, and none back */
#include "check.h"

int main(void) {
    MPI_Comm graph = MPI_COMM_NULL;
    int ends[3] = {2, 3, 4}, edges[4] = {1, 2, 0, 0};
    start();
    if (IS_WRONG) edges[3] = 1;
    MPI_Graph_create(MPI_COMM_WORLD, 3, ends, edges, 0, &graph);
    if (graph != MPI_COMM_NULL) MPI_Comm_free(&graph);
    return finish();
}
