/* Example 2 of the paper: rank 0 is the intended root, and a rank gives the last one.
   ranks 3
   says VERIFY MPI_GATHER(2): root 2 inconsistent with root 0 of 0 */
#include "check.h"

int main(void) {
    int all[3] = {0}, mine = 0;
    start();
    MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, WRONG_AT(2, 2, 0), MPI_COMM_WORLD);
    return finish();
}
