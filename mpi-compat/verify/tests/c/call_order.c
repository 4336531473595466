/* Ranks make two collective calls in different orders.
   ranks 3
   says VERIFY MPI_REDUCE(1): call inconsistent with call to MPI_Bcast by 0 */
#include "check.h"

static void bcast(void) {
    int value = rank;
    MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
}
static void reduce(void) {
    int value = rank, sum;
    MPI_Reduce(&value, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
}
int main(void) {
    start();
    if (WRONG_AT(1, 1, 0)) {
        reduce();
        bcast();
    } else {
        bcast();
        reduce();
    }
    int both = handled == (IS_WRONG ? 2 : 0);
    if (!both) printf("FAILED rank %d: %d\n", rank, handled);
    handled = IS_WRONG;
    return finish();
}
