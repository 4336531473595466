/* The message of a matched probe of MPI_PROC_NULL, without MPI_Init. */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Message message;
    MPI_Request request;
    MPI_Status status;
    int value = 5, count;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MPI_Comm comm = comm_of(session, "mpi://SELF", "no proc");
    for (int i = 0; i < 2; i++) {
        OK(MPI_Mprobe(MPI_PROC_NULL, 0, comm, &message, &status));
        CHECK(message == MPI_MESSAGE_NO_PROC);
        memset(&status, 0, sizeof status);
        if (i == 0) OK(MPI_Mrecv(&value, 1, MPI_INT, &message, &status));
        else {
            OK(MPI_Imrecv(&value, 1, MPI_INT, &message, &request));
            OK(MPI_Wait(&request, &status));
        }
        CHECK(message == MPI_MESSAGE_NULL);
        CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
        OK(MPI_Get_count(&status, MPI_INT, &count));
        CHECK(count == 0 && value == 5);
    }
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    return end();
}
