/* A rank calls MPI_Finalize while others call collectives.
   ranks 2
   fatal
   says VERIFY MPI_BARRIER(1): call inconsistent with call to MPI_Finalize by 0 */
#include "check.h"

int main(void) {
    start();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (!WRONG_AT(0, 1, 0)) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    printf("ended\n");
    return 0;
}
