/* The default error handler ends the job when a rank is killed, with a text that gives the reason.
   ranks 2
   code any
   says (MPI_ERR_PROC_ABORTED); the error handler ends the job
   not on peers: texts are each library's own */
#include "check.h"
#include <signal.h>

int main(void) {
    int value;
    MPI_Init(NULL, NULL);
    if (rank_of(MPI_COMM_WORLD) == 1) raise(SIGKILL);
    MPI_Recv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("it went on\n");
    return 0;
}
