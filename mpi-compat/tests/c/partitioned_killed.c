/* If the sender is killed, the receive of its partitions fails.
   ranks 2 3
   code any
   says got the error
   not on peers: they end the job, or wait */
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(void) {
    MPI_Request request;
    int data[2] = {0};
    start();
    if (rank_of(MPI_COMM_WORLD) == 1) {
        before_end_of(1, MPI_COMM_WORLD);
        OK(MPI_Psend_init(data, 2, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Pready(0, request));
        raise(SIGKILL);
    }
    OK(MPI_Precv_init(data, 2, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    before_end_of(1, MPI_COMM_WORLD);
    FAILS(MPI_ERR_PROC_ABORTED, MPI_Wait(&request, MPI_STATUS_IGNORE));
    if (failures == 0) printf("got the error\n");
    fflush(stdout);
    _exit(1);
}
