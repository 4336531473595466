/* The buffer of a session serves buffered sends on communicators that are made from it, directly or from other
   communicators.
   ranks 2 3 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm comm, copy;
    MPI_Request request;
    void *detached;
    int rank, size, bytes, value[2], got;
    static char buffer[4096];
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    comm = comm_of(session, "mpi://WORLD", "buffer");
    OK(MPI_Comm_dup(comm, &copy));
    rank = rank_of(comm);
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Session_attach_buffer(session, buffer, sizeof buffer));
    value[0] = rank;
    value[1] = 100 + rank;
    OK(MPI_Bsend(&value[0], 1, MPI_INT, (rank + 1) % size, 0, comm));
    OK(MPI_Bsend(&value[1], 1, MPI_INT, (rank + 1) % size, 0, copy));
    value[0] = value[1] = -1;
    OK(MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 0, copy, MPI_STATUS_IGNORE));
    CHECK(got == 100 + (rank + size - 1) % size);
    OK(MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 0, comm, MPI_STATUS_IGNORE));
    CHECK(got == (rank + size - 1) % size);
    OK(MPI_Session_flush_buffer(session));
    OK(MPI_Session_iflush_buffer(session, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Session_detach_buffer(session, &detached, &bytes));
    CHECK(detached == buffer && bytes == sizeof buffer);
    OK(MPI_Comm_free(&copy));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    return end();
}
