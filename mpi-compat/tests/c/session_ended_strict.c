/* After the last session has ended, and without MPI_Init, calls on its objects are errors.
   ranks 1 2
   not on peers: MPICH does not look */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm comm;
    int value = 0;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    comm = comm_of(session, "mpi://WORLD", "ended");
    OK(MPI_Session_finalize(&session));
    FAILS(MPI_ERR_OTHER, MPI_Bcast(&value, 1, MPI_INT, 0, comm));
    return end();
}
