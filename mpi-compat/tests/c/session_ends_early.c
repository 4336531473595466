/* A process that has ended its session exits while others continue without it.
   ranks 3 4
   not on peers: MPICH waits forever */
#include "session.h"
#include <unistd.h>

int main(void) {
    MPI_Session session;
    MPI_Group all, part;
    MPI_Comm comm;
    int rank, sum;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &all));
    OK(MPI_Group_rank(all, &rank));
    if (rank == 0 || rank == 2) {
        OK(MPI_Group_incl(all, 2, (int[]){0, 2}, &part));
        OK(MPI_Comm_create_from_group(part, "part", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
        for (int i = 0; i < 10; i++) {
            usleep(100000);
            OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
            CHECK(sum == 2);
        }
        OK(MPI_Comm_free(&comm));
        OK(MPI_Group_free(&part));
    }
    OK(MPI_Group_free(&all));
    OK(MPI_Session_finalize(&session));
    return end();
}
