/* Either all ranks disconnect, or all free.
   ranks 2
   says VERIFY MPI_COMM_FREE(1): call inconsistent with call to MPI_Comm_disconnect by 0 */
#include "check.h"

int main(void) {
    MPI_Comm comm;
    start();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    handle(comm);
    if (WRONG_AT(1, 1, 0)) MPI_Comm_free(&comm);
    else MPI_Comm_disconnect(&comm);
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    return finish();
}
