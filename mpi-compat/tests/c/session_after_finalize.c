/* A session that is opened after MPI_Finalize.
   not on peers: MPICH crashes at times
   ranks 1 2 4 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm comm;
    int rank, size, sum;
    start();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Finalize());
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    comm = comm_of(session, "mpi://WORLD", "after");
    OK(MPI_Comm_size(comm, &size));
    rank = rank_of(comm);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    return end();
}
