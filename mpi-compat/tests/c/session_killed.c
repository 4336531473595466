/* If a process in a session is killed, the others get an error.
   ranks 2 3
   code any
   says got the error
   not on peers: they end the job, or wait */
#include "session.h"
#include <signal.h>
#include <unistd.h>

int main(void) {
    MPI_Session session;
    MPI_Comm comm;
    int value = 0;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    comm = comm_of(session, "mpi://WORLD", "killed");
    before_end_of(1, comm);
    if (rank_of(comm) == 1) raise(SIGKILL);
    FAILS(MPI_ERR_PROC_ABORTED, MPI_Recv(&value, 1, MPI_INT, 1, 0, comm, MPI_STATUS_IGNORE));
    if (failures == 0) printf("got the error\n");
    fflush(stdout);
    _exit(1);
}
