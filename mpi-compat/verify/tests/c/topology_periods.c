/* All ranks give the same periods.
   ranks 2
   says VERIFY MPI_CART_MAP(1): periods {1} inconsistent with periods {0} of 0 */
#include "check.h"

int main(void) {
    int place;
    start();
    MPI_Cart_map(MPI_COMM_WORLD, 1, (int[]){2}, WRONG_AT(1, ((int[]){1}), ((int[]){0})), &place);
    return finish();
}
