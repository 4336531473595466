/* Cartesian grids: coordinates, ranks, shifts, subgrids, duplicates; surplus ranks get no communicator.
   ranks 1 2 4 5 */
#include "check.h"

int main(void) {
    MPI_Comm grid, row, dup;
    int rank, size, status, n, source, dest, dims[2] = {0, 0}, periods[2] = {1, 0}, coords[2], got[2], wrapped[2], r;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int nodes = size - size % 2 + (size == 1);
    OK(MPI_Dims_create(nodes, 2, dims));
    CHECK(dims[0] * dims[1] == nodes && dims[0] >= dims[1]);
    OK(MPI_Topo_test(MPI_COMM_WORLD, &status));
    CHECK(status == MPI_UNDEFINED);
    OK(MPI_Cart_map(MPI_COMM_WORLD, 2, dims, periods, &n));
    CHECK(rank < nodes ? n >= 0 : n == MPI_UNDEFINED);
    int none[2] = {2, 0};
    OK(MPI_Cart_map(MPI_COMM_WORLD, 2, none, periods, &n));
    CHECK(n == MPI_UNDEFINED);
    OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid));
    CHECK((grid == MPI_COMM_NULL) == (rank >= nodes));
    if (grid != MPI_COMM_NULL) {
        OK(MPI_Topo_test(grid, &status));
        CHECK(status == MPI_CART);
        OK(MPI_Cartdim_get(grid, &n));
        CHECK(n == 2);
        OK(MPI_Cart_get(grid, 2, got, wrapped, coords));
        CHECK(got[0] == dims[0] && got[1] == dims[1] && wrapped[0] && !wrapped[1]);
        CHECK(coords[0] == rank / dims[1] && coords[1] == rank % dims[1]);
        for (int i = 0; i < nodes; i++) {
            OK(MPI_Cart_coords(grid, i, 2, coords));
            coords[0] -= dims[0];
            OK(MPI_Cart_rank(grid, coords, &r));
            CHECK(r == i);
        }
        OK(MPI_Cart_shift(grid, 0, 1, &source, &dest));
        CHECK(dest == (rank + dims[1]) % nodes && source == (rank + nodes - dims[1]) % nodes);
        OK(MPI_Cart_shift(grid, 1, -1, &source, &dest));
        CHECK(dest == (rank % dims[1] ? rank - 1 : MPI_PROC_NULL));
        CHECK(source == ((rank + 1) % dims[1] ? rank + 1 : MPI_PROC_NULL));
        int keep[2] = {0, 1};
        OK(MPI_Cart_sub(grid, keep, &row));
        OK(MPI_Cartdim_get(row, &n));
        OK(MPI_Comm_size(row, &r));
        CHECK(n == 1 && r == dims[1]);
        OK(MPI_Comm_rank(row, &r));
        CHECK(r == rank % dims[1]);
        OK(MPI_Cart_get(row, 1, got, wrapped, coords));
        CHECK(got[0] == dims[1] && !wrapped[0] && coords[0] == r);
        OK(MPI_Comm_free(&row));
        int none[2] = {0, 0};
        OK(MPI_Cart_sub(grid, none, &row));
        OK(MPI_Cartdim_get(row, &n));
        OK(MPI_Comm_size(row, &r));
        CHECK(n == 0 && r == 1);
        OK(MPI_Comm_free(&row));
        OK(MPI_Comm_dup(grid, &dup));
        OK(MPI_Topo_test(dup, &status));
        CHECK(status == MPI_CART);
        OK(MPI_Comm_free(&dup));
        OK(MPI_Comm_free(&grid));
    }
    OK(MPI_Cart_create(MPI_COMM_WORLD, 0, NULL, NULL, 0, &grid));
    CHECK((grid == MPI_COMM_NULL) == (rank > 0));
    if (rank == 0) {
        OK(MPI_Cartdim_get(grid, &n));
        CHECK(n == 0);
        OK(MPI_Comm_free(&grid));
    }
    return finish();
}
