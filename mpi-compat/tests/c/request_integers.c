/* Requests and messages as integers. */
#include "check.h"

int main(void) {
    int value = 1, got = 0;
    MPI_Request receive, send;
    MPI_Message message;
    start();
    OK(MPI_Irecv(&got, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &receive));
    CHECK(MPI_Request_fromint(MPI_Request_toint(receive)) == receive);
    CHECK(MPI_Request_fromint(MPI_Request_toint(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL);
    OK(MPI_Isend(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &send));
    CHECK(MPI_Request_fromint(MPI_Request_toint(send)) == send);
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    OK(MPI_Isend(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &send));
    OK(MPI_Mprobe(0, 0, MPI_COMM_SELF, &message, MPI_STATUS_IGNORE));
    message = MPI_Message_fromint(MPI_Message_toint(message));
    OK(MPI_Mrecv(&got, 1, MPI_INT, &message, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    CHECK(got == 1);
    return finish();
}
