/* Example 1 of the paper: the root calls MPI_Gather, the others MPI_Scatter.
   ranks 3
   says VERIFY MPI_SCATTER(2): call inconsistent with call to MPI_Gather by 0
   says VERIFY MPI_SCATTER(1): call inconsistent with call to MPI_Gather by 0 */
#include "check.h"

int main(void) {
    int all[3] = {0}, mine = 0;
    start();
    if (WRONG_AT(0, 1, 0)) MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    else MPI_Scatter(all, 1, MPI_INT, &mine, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return finish();
}
