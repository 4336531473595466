/* The root must be a rank; all ranks get the error.
   ranks 2
   says VERIFY MPI_BCAST(0): root 2 is not a rank from 0 to 1 */
#include "check.h"

int main(void) {
    int value = 0;
    start();
    MPI_Bcast(&value, 1, MPI_INT, IS_WRONG ? 2 : 1, MPI_COMM_WORLD);
    return finish();
}
