/* A session that is opened before MPI_Init and closed after MPI_Finalize: both worlds communicate at the same time.
   ranks 1 2 4 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm comm;
    int rank, size, sum, flag;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    start();
    comm = comm_of(session, "mpi://WORLD", "beside");
    rank = rank_of(MPI_COMM_WORLD);
    CHECK(rank_of(comm) == rank);
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Finalize());
    OK(MPI_Finalized(&flag));
    CHECK(flag == 1);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_MAX, comm));
    CHECK(sum == size - 1);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    return end();
}
