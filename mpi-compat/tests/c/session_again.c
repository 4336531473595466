/* Sessions one after the other, in a process that never calls MPI_Init.
   ranks 1 2 4
   not on peers: MPICH sometimes matches messages of two sessions */
#include "session.h"

int main(void) {
    for (int i = 0; i < 4; i++) {
        MPI_Session session;
        MPI_Comm comm;
        int rank, size, most;
        OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
        comm = comm_of(session, "mpi://WORLD", "again");
        OK(MPI_Comm_size(comm, &size));
        rank = rank_of(comm) + i;
        OK(MPI_Allreduce(&rank, &most, 1, MPI_INT, MPI_MAX, comm));
        CHECK(most == size - 1 + i);
        OK(MPI_Comm_disconnect(&comm));
        OK(MPI_Session_finalize(&session));
    }
    return end();
}
