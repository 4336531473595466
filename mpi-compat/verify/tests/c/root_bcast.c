/* All ranks name one root.
   ranks 3
   says VERIFY MPI_BCAST(1): root 1 inconsistent with root 0 of 0 */
#include "check.h"

int main(void) {
    int value = 0;
    start();
    MPI_Bcast(&value, 1, MPI_INT, WRONG_AT(1, 1, 0), MPI_COMM_WORLD);
    return finish();
}
