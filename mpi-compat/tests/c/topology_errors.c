/* Errors: communicators without a topology or with another one, and values out of range. */
#include "check.h"

int main(void) {
    MPI_Comm grid;
    int n, two[2] = {1, 2}, zero[2] = {0, 0}, one[1] = {1}, none[1] = {0};
    start();
    FAILS(MPI_ERR_TOPOLOGY, MPI_Cartdim_get(MPI_COMM_SELF, &n));
    FAILS(MPI_ERR_TOPOLOGY, MPI_Graph_neighbors_count(MPI_COMM_SELF, 0, &n));
    FAILS(MPI_ERR_COMM, MPI_Topo_test(MPI_COMM_NULL, &n));
    FAILS(MPI_ERR_ARG, MPI_Dims_create(-1, 2, zero));
    OK(MPI_Cart_create(MPI_COMM_SELF, 1, one, none, 0, &grid));
    FAILS(MPI_ERR_RANK, MPI_Cart_coords(grid, 1, 1, two));
    FAILS(MPI_ERR_TOPOLOGY, MPI_Graphdims_get(grid, &n, &n));
    OK(MPI_Comm_free(&grid));
    return finish();
}
