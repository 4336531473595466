/* MPI_ERRORS_ABORT ends the job.
   code any */
#include "check.h"

int main(void) {
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ABORT);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ABORT);
    MPI_Comm_set_name(MPI_COMM_WORLD, NULL);
    printf("it went on\n");
    return 0;
}
