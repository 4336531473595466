/* The grid must not be larger than the communicator.
   ranks 2
   says VERIFY MPI_CART_CREATE(0): dims {2,2} has 4 positions, but the communicator has 2 ranks */
#include "check.h"

int main(void) {
    MPI_Comm grid = MPI_COMM_NULL;
    start();
    MPI_Cart_create(MPI_COMM_WORLD, 2, IS_WRONG ? (int[]){2, 2} : (int[]){2, 1}, (int[]){0, 0}, 0, &grid);
    if (grid != MPI_COMM_NULL) MPI_Comm_free(&grid);
    /* A grid of no places is smaller than the communicator. */
    MPI_Cart_create(MPI_COMM_WORLD, 2, (int[]){1000, 0}, (int[]){0, 0}, 0, &grid);
    if (grid != MPI_COMM_NULL) printf("FAILED a grid of no places\n");
    return finish();
}
