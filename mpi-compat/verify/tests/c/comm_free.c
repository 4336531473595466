/* All ranks of a communicator free it at the same position in the sequence of calls.
   ranks 2
   says VERIFY MPI_COMM_FREE(1): call inconsistent with call to MPI_Barrier by 0 */
#include "check.h"

int main(void) {
    MPI_Comm comm;
    start();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (WRONG_AT(1, 1, 0)) MPI_Comm_free(&comm);
    else MPI_Barrier(comm);
    MPI_Comm_free(&comm);
    return finish();
}
