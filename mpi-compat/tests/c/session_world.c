/* MPI without MPI_Init: a session, the process set of all processes, a communicator of its group, and calls on that.
   ranks 1 2 3 4 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm comm;
    int rank, size, sum, flag, from = -1;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Initialized(&flag));
    CHECK(flag == 0);
    comm = comm_of(session, "mpi://WORLD", "world");
    OK(MPI_Comm_rank(comm, &rank));
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 3, &from, 1, MPI_INT, (rank + size - 1) % size, 3, comm,
                    MPI_STATUS_IGNORE));
    CHECK(from == (rank + size - 1) % size);
    OK(MPI_Comm_free(&comm));
    CHECK(comm == MPI_COMM_NULL);
    OK(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL);
    OK(MPI_Finalized(&flag));
    CHECK(flag == 0);
    return end();
}
