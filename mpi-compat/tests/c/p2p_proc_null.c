/* Messages to and from MPI_PROC_NULL complete at once, without effect, with a status of their own. */
#include "check.h"

static void is_from_proc_null(const MPI_Status *status) {
    int count;
    CHECK(status->MPI_SOURCE == MPI_PROC_NULL && status->MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Get_count(status, MPI_INT, &count));
    CHECK(count == 0);
}

int main(void) {
    int value = 7, flag = 0;
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    start();
    OK(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD));
    OK(MPI_Ssend(&value, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD));
    OK(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 3, MPI_COMM_WORLD, &status));
    is_from_proc_null(&status);
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, &status));
    is_from_proc_null(&status);
    OK(MPI_Probe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
    is_from_proc_null(&status);
    OK(MPI_Iprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &flag, &status));
    CHECK(flag);
    is_from_proc_null(&status);
    OK(MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC);
    is_from_proc_null(&status);
    OK(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
    CHECK(message == MPI_MESSAGE_NULL);
    is_from_proc_null(&status);
    OK(MPI_Improbe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &flag, &message, &status));
    CHECK(flag && message == MPI_MESSAGE_NO_PROC);
    OK(MPI_Imrecv(&value, 1, MPI_INT, &message, &request));
    OK(MPI_Wait(&request, &status));
    is_from_proc_null(&status);
    OK(MPI_Sendrecv(&value, 1, MPI_INT, MPI_PROC_NULL, 0, &value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status));
    is_from_proc_null(&status);
    OK(MPI_Send_init(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request));
    OK(MPI_Start(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    CHECK(value == 7);
    return finish();
}
