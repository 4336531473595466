/* Both ranks of an edge must give it.
   ranks 3
   says VERIFY MPI_DIST_GRAPH_CREATE_ADJACENT(0): edges to 1: 1 in destinations != 0 in sources(1) */
#include "check.h"

int main(void) {
    MPI_Comm graph = MPI_COMM_NULL;
    int to, from;
    start();
    to = (rank + 1) % 3;
    from = WRONG_AT(1, 2, (rank + 2) % 3);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    if (graph != MPI_COMM_NULL) MPI_Comm_free(&graph);
    return finish();
}
