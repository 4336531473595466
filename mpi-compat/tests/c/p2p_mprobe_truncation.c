/* A matched message longer than its receive is an error. */
#include "check.h"

int main(void) {
    int data[4] = {1, 2, 3, 4}, got;
    MPI_Message message;
    MPI_Request request;
    start();
    OK(MPI_Isend(data, 4, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    OK(MPI_Mprobe(0, 0, MPI_COMM_SELF, &message, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_TRUNCATE, MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    return finish();
}
