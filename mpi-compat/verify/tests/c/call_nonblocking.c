/* A blocking and a non-blocking barrier do not match; the non-blocking one is compared when it is completed.
   ranks 2
   fatal
   says VERIFY MPI_IBARRIER(1): call inconsistent with call to MPI_Ibcast by 0 */
#include "check.h"

int main(void) {
    MPI_Request request;
    int value = 0;
    start();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (WRONG_AT(0, 1, 0)) MPI_Ibcast(&value, 0, MPI_INT, 0, MPI_COMM_WORLD, &request);
    else MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return finish();
}
