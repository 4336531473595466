/* Level 2 adds the rule, and the value that each rank gave.
   ranks 4
   level 2
   says VERIFY MPI_BCAST(3): root 1 inconsistent with root 0 of 0
   says Here: root 0 by 0, 2; root 1 by 1, 3. */
#include "check.h"

int main(void) {
    int value = 0;
    start();
    MPI_Bcast(&value, 1, MPI_INT, IS_WRONG ? rank % 2 : 0, MPI_COMM_WORLD);
    return finish();
}
