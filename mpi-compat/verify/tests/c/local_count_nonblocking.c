/* A rank with wrong arguments does not start the call; the others get the error when they wait.
   ranks 2
   fatal
   says VERIFY MPI_IBCAST(1): count=-1 < 0 */
#include "check.h"

int main(void) {
    MPI_Request request;
    int value = 0;
    start();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Ibcast(&value, WRONG_AT(1, -1, 1), MPI_INT, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return finish();
}
