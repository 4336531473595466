/* A receive that is cancelled in time gets no message, and its status says that it was cancelled. */
#include "check.h"

int main(void) {
    int value = 3, got = 0, flag;
    MPI_Request receive, send;
    MPI_Status status;
    start();
    OK(MPI_Irecv(&got, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &receive));
    OK(MPI_Cancel(&receive));
    CHECK(receive != MPI_REQUEST_NULL);
    OK(MPI_Wait(&receive, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag && receive == MPI_REQUEST_NULL);
    /* The message goes to the next one. */
    OK(MPI_Isend(&value, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &send));
    OK(MPI_Irecv(&got, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &receive));
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&receive, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(!flag && got == 3);
    /* A persistent request is inactive then, and is started again. */
    OK(MPI_Recv_init(&got, 1, MPI_INT, 0, 2, MPI_COMM_SELF, &receive));
    OK(MPI_Start(&receive));
    OK(MPI_Cancel(&receive));
    OK(MPI_Wait(&receive, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag && receive != MPI_REQUEST_NULL);
    OK(MPI_Start(&receive));
    OK(MPI_Send(&value, 1, MPI_INT, 0, 2, MPI_COMM_SELF));
    OK(MPI_Wait(&receive, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(!flag);
    OK(MPI_Request_free(&receive));
    /* After the message has arrived it is too late. */
    OK(MPI_Irecv(&got, 1, MPI_INT, 0, 4, MPI_COMM_SELF, &receive));
    OK(MPI_Send(&value, 1, MPI_INT, 0, 4, MPI_COMM_SELF));
    for (flag = 0; !flag;) OK(MPI_Request_get_status(receive, &flag, MPI_STATUS_IGNORE));
    OK(MPI_Cancel(&receive));
    OK(MPI_Wait(&receive, &status));
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(!flag);
    return finish();
}
