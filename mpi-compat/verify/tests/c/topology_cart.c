/* All ranks give the same grid.
   ranks 4
   says VERIFY MPI_CART_CREATE(3): dims {4,1} inconsistent with dims {2,2} of 0 */
#include "check.h"

int main(void) {
    MPI_Comm grid = MPI_COMM_NULL, line;
    int periods[2] = {0, 1}, keep[2] = {0, 1}, place;
    start();
    MPI_Cart_create(MPI_COMM_WORLD, 2, WRONG_AT(3, ((int[]){4, 1}), ((int[]){2, 2})), periods, 0, &grid);
    if (grid != MPI_COMM_NULL) {
        MPI_Cart_sub(grid, keep, &line);
        MPI_Barrier(line);
        MPI_Comm_free(&line);
        MPI_Comm_free(&grid);
    }
    MPI_Cart_map(MPI_COMM_WORLD, 2, (int[]){2, 2}, periods, &place);
    return finish();
}
