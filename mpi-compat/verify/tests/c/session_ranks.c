/* A rank is named only once in a group, also before there is a communicator.
   ranks 2
   wrong only
   says VERIFY MPI_GROUP_INCL: ranks[1]=0 occurs twice */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Group all, some;
    int code, class = MPI_SUCCESS;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &all);
    code = MPI_Group_incl(all, 2, (int[]){0, 0}, &some);
    MPI_Error_class(code, &class);
    if (class != MPI_ERR_RANK) printf("FAILED class %d\n", class);
    MPI_Group_free(&all);
    MPI_Session_finalize(&session);
    return ended(0);
}
