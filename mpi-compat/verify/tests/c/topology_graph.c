/* All ranks give the whole graph.
   ranks 3
   says VERIFY MPI_GRAPH_CREATE(2): edges {2,1,0,0} inconsistent with edges {1,2,0,0} of 0 */
#include "check.h"

int main(void) {
    MPI_Comm graph = MPI_COMM_NULL;
    int place, out[2], in = 0;
    int ends[2][3] = {{2, 3, 4}, {1, 3, 4}}, edges[2][4] = {{1, 2, 0, 0}, {1, 0, 2, 1}};
    start();
    if (IS_WRONG) memcpy(ends[1], ends[0], sizeof ends[0]);
    /* The wrong graph is a good one too. */
    if (IS_WRONG) memcpy(edges[1], (int[]){2, 1, 0, 0}, sizeof edges[0]);
    MPI_Graph_create(MPI_COMM_WORLD, 3, ends[0], edges[WRONG_AT(2, 1, 0)], 0, &graph);
    if (graph != MPI_COMM_NULL) {
        MPI_Neighbor_allgather(&in, 1, MPI_INT, out, 1, MPI_INT, graph);
        MPI_Comm_free(&graph);
    }
    MPI_Graph_map(MPI_COMM_WORLD, 3, ends[0], edges[0], &place);
    return finish();
}
