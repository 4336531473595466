/* Distributed graphs: edges given by their own ranks, or by any; weights; duplicates.
   ranks 1 2 4 */
#include "check.h"

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(void) {
    MPI_Comm graph, dup;
    int rank, size, status, in, out, weighted, from[16], to[16], inw[16], outw[16];
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* Edges lead to the next rank twice, and to the rank itself. */
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int sources[3] = {last, rank, last}, destinations[3] = {next, next, rank}, sw[3] = {1, 2, 3}, dw[3] = {1, 3, 2};
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 3, sources, sw, 3, destinations, dw, MPI_INFO_NULL, 0, &graph));
    OK(MPI_Comm_dup(graph, &dup));
    OK(MPI_Comm_free(&graph));
    OK(MPI_Topo_test(dup, &status));
    CHECK(status == MPI_DIST_GRAPH);
    OK(MPI_Dist_graph_neighbors_count(dup, &in, &out, &weighted));
    CHECK(in == 3 && out == 3 && weighted);
    OK(MPI_Dist_graph_neighbors(dup, 3, from, inw, 3, to, outw));
    CHECK(memcmp(from, sources, sizeof sources) == 0 && memcmp(to, destinations, sizeof destinations) == 0);
    CHECK(memcmp(inw, sw, sizeof sw) == 0 && memcmp(outw, dw, sizeof dw) == 0);
    OK(MPI_Comm_free(&dup));

    /* Rank 0 gives a star to and from itself, the last rank one more edge; the library chooses the order of edges. */
    int n = rank == 0 ? size : 0, at = 0, degrees[8], all[32], first[8], weights[32];
    for (int i = 0; i < n; i++) {
        first[i] = i;
        degrees[i] = i == 0 ? size : 1;
        for (int j = 0; j < degrees[i]; j++) all[at] = i == 0 ? j : 0, weights[at++] = 10 * i + j;
    }
    if (rank == size - 1) first[n] = size - 1, degrees[n++] = 1, weights[at] = 77, all[at++] = size - 1;
    for (int i = 0; i < 2; i++) {
        OK(MPI_Dist_graph_create(MPI_COMM_WORLD, n, first, degrees, all, i ? MPI_UNWEIGHTED : weights, MPI_INFO_NULL, 0,
                                 &graph));
        OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted));
        int more = rank == size - 1;
        CHECK(in == (rank == 0 ? size : 1) + more && out == in && weighted == !i);
        OK(MPI_Dist_graph_neighbors(graph, 16, from, i ? MPI_UNWEIGHTED : inw, 16, to, i ? MPI_UNWEIGHTED : outw));
        qsort(from, in, sizeof(int), compare);
        for (int j = 0; j < in - more; j++) CHECK(from[j] == (rank == 0 ? j : 0));
        if (more) CHECK(from[in - 1] == rank);
        if (!i && size > 1 && rank == size - 1) CHECK(inw[0] + inw[1] == rank + 77 && outw[0] + outw[1] == 10 * rank + 77);
        OK(MPI_Comm_free(&graph));
    }
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, NULL, MPI_WEIGHTS_EMPTY, 0, NULL, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0,
                                      &graph));
    OK(MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted));
    CHECK(in == 0 && out == 0 && weighted);
    OK(MPI_Comm_free(&graph));
    return finish();
}
