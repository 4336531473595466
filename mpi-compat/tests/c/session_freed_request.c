/* The end of the last session completes sends whose requests were freed, and buffered sends of the process's buffer.
   ranks 2 */
#include "session.h"
#include <unistd.h>

enum { LEN = 1 << 20 };

int main(void) {
    MPI_Session session;
    MPI_Request request;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    MPI_Comm comm = comm_of(session, "mpi://WORLD", "freed");
    unsigned char *data = malloc(LEN), *buffer = malloc(LEN + MPI_BSEND_OVERHEAD);
    if (rank_of(comm) == 0) {
        fill(data, LEN, 1);
        OK(MPI_Buffer_attach(buffer, LEN + MPI_BSEND_OVERHEAD));
        OK(MPI_Isend(data, LEN, MPI_BYTE, 1, 0, comm, &request));
        OK(MPI_Request_free(&request));
        OK(MPI_Bsend(data, LEN, MPI_BYTE, 1, 1, comm));
    } else {
        usleep(300000);
        OK(MPI_Recv(data, LEN, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE));
        CHECK(is_filled(data, LEN, 1));
        memset(data, 0, LEN);
        OK(MPI_Recv(data, LEN, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE));
        CHECK(is_filled(data, LEN, 1));
    }
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    return end();
}
