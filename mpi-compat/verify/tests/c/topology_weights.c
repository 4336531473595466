/* Both ranks of an edge must give the same weight.
   ranks 3
   says VERIFY MPI_DIST_GRAPH_CREATE_ADJACENT(0): weight=5 < expected weight(1)=6 */
#include "check.h"

int main(void) {
    MPI_Comm graph = MPI_COMM_NULL;
    int to, from, weight = 5, other;
    start();
    to = (rank + 1) % 3;
    from = (rank + 2) % 3;
    other = WRONG_AT(1, 6, 5);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &from, &other, 1, &to, &weight, MPI_INFO_NULL, 0, &graph);
    if (graph != MPI_COMM_NULL) MPI_Comm_free(&graph);
    return finish();
}
