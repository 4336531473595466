/* The buffers of a send with a receive must not overlap.
   not on peers: MPICH does not look */
#include "check.h"

int main(void) {
    int data[4] = {1, 2, 3, 4};
    start();
    FAILS(MPI_ERR_BUFFER, MPI_Sendrecv(data, 3, MPI_INT, 0, 0, data + 2, 2, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Sendrecv(data, 2, MPI_INT, 0, 0, data + 2, 2, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(data[2] == 1 && data[3] == 2);
    /* Nothing is sent, or received. */
    OK(MPI_Sendrecv(data, 3, MPI_INT, MPI_PROC_NULL, 0, data, 3, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    return finish();
}
