/* A graph that is known completely at every rank: a ring with a chord, and its queries.
   ranks 1 3 5 */
#include "check.h"

int main(void) {
    MPI_Comm ring;
    int rank, size, status, n, m, index[8], edges[32], got[32], at = 0;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int nodes = size > 1 ? size - 1 : 1;
    for (int i = 0; i < nodes; i++) {
        edges[at++] = (i + 1) % nodes;
        edges[at++] = (i + nodes - 1) % nodes;
        if (i == 0) edges[at++] = nodes / 2;
        index[i] = at;
    }
    OK(MPI_Graph_map(MPI_COMM_WORLD, nodes, index, edges, &n));
    CHECK(rank < nodes ? n >= 0 : n == MPI_UNDEFINED);
    OK(MPI_Graph_create(MPI_COMM_WORLD, nodes, index, edges, 0, &ring));
    CHECK((ring == MPI_COMM_NULL) == (rank >= nodes));
    if (ring != MPI_COMM_NULL) {
        OK(MPI_Topo_test(ring, &status));
        CHECK(status == MPI_GRAPH);
        OK(MPI_Graphdims_get(ring, &n, &m));
        CHECK(n == nodes && m == at);
        OK(MPI_Graph_get(ring, 8, 32, got, got + 8));
        CHECK(memcmp(got, index, nodes * sizeof(int)) == 0 && memcmp(got + 8, edges, at * sizeof(int)) == 0);
        for (int i = 0; i < nodes; i++) {
            OK(MPI_Graph_neighbors_count(ring, i, &n));
            CHECK(n == (i == 0 ? 3 : 2));
            OK(MPI_Graph_neighbors(ring, i, 8, got));
            CHECK(got[0] == (i + 1) % nodes && got[1] == (i + nodes - 1) % nodes);
        }
        OK(MPI_Comm_free(&ring));
    }
    return finish();
}
