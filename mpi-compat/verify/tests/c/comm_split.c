/* Colors must not be negative, except for MPI_UNDEFINED.
   ranks 2
   says VERIFY MPI_COMM_SPLIT(1): color=-1 < 0 */
#include "check.h"

int main(void) {
    MPI_Comm comm = MPI_COMM_NULL;
    start();
    MPI_Comm_split(MPI_COMM_WORLD, WRONG_AT(1, -1, rank ? MPI_UNDEFINED : 3), 0, &comm);
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    return finish();
}
