/* All ranks keep the same dimensions.
   ranks 2
   says VERIFY MPI_CART_SUB(1): remain_dims {0,1} inconsistent with remain_dims {1,0} of 0 */
#include "check.h"

int main(void) {
    MPI_Comm grid, line = MPI_COMM_NULL;
    start();
    MPI_Cart_create(MPI_COMM_WORLD, 2, (int[]){2, 1}, (int[]){0, 0}, 0, &grid);
    handle(grid);
    MPI_Cart_sub(grid, WRONG_AT(1, ((int[]){0, 1}), ((int[]){1, 0})), &line);
    if (line != MPI_COMM_NULL) MPI_Comm_free(&line);
    MPI_Comm_free(&grid);
    return finish();
}
