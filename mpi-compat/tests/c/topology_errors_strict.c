/* More errors of topologies.
   ranks 1 2
   not on peers: their classes differ, and some of these they take */
#include "check.h"

int main(void) {
    MPI_Comm comm, grid;
    int n, m, size, many[2] = {1000, 2}, zero[2] = {0, 0}, negative[2] = {1, -1}, empty[2] = {1000, 0}, one[1] = {1}, none[1] = {0}, five[1] = {5}, edges[2] = {7, 7}, data[4];
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    FAILS(MPI_ERR_DIMS, MPI_Cart_create(MPI_COMM_WORLD, 2, many, zero, 0, &comm));
    FAILS(MPI_ERR_DIMS, MPI_Cart_create(MPI_COMM_WORLD, 2, negative, zero, 0, &comm));
    /* A grid of no ranks is smaller than the communicator. */
    OK(MPI_Cart_create(MPI_COMM_WORLD, 2, empty, zero, 0, &comm));
    CHECK(comm == MPI_COMM_NULL);
    OK(MPI_Cart_map(MPI_COMM_WORLD, 2, empty, zero, &n));
    CHECK(n == MPI_UNDEFINED);
    FAILS(MPI_ERR_DIMS, MPI_Cart_create(MPI_COMM_WORLD, -1, zero, zero, 0, &comm));
    FAILS(MPI_ERR_ARG, MPI_Cart_create(MPI_COMM_WORLD, 1, NULL, zero, 0, &comm));
    FAILS(MPI_ERR_ARG, MPI_Graph_create(MPI_COMM_WORLD, 1, one, edges, 0, &comm));
    FAILS(MPI_ERR_ARG, MPI_Graph_create(MPI_COMM_WORLD, 99, one, edges, 0, &comm));
    FAILS(MPI_ERR_RANK,
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, edges, MPI_UNWEIGHTED, 0, none, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm));
    FAILS(MPI_ERR_ARG,
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, none, one, 1, none, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm));
    FAILS(MPI_ERR_TOPOLOGY, MPI_Neighbor_allgather(data, 1, MPI_INT, data, 1, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, one, none, 0, &grid));
    if (grid != MPI_COMM_NULL) {
        FAILS(MPI_ERR_ARG, MPI_Cart_rank(grid, five, &n));
        FAILS(MPI_ERR_ARG, MPI_Cart_coords(grid, 0, 0, five));
        FAILS(MPI_ERR_DIMS, MPI_Cart_shift(grid, 1, 1, &n, &m));
        FAILS(MPI_ERR_DIMS, MPI_Cart_shift(grid, -1, 1, &n, &m));
        FAILS(MPI_ERR_COUNT, MPI_Neighbor_allgather(data, -1, MPI_INT, data + 1, 1, MPI_INT, grid));
        OK(MPI_Comm_free(&grid));
    }
    /* A great prime takes no time. */
    OK(MPI_Dims_create(2147483647, 2, zero));
    CHECK(zero[0] == 2147483647 && zero[1] == 1);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return finish();
}
