/* The error handler of a communicator is the one passed to the call that made it.
   ranks 1 2
   not on peers: MPICH looks at no arguments here */
#include "session.h"

static int calls;
static MPI_Comm expected;

static void handler(MPI_Comm *comm, int *code, ...) {
    calls++;
    CHECK(*comm == expected && class_of(*code) == MPI_ERR_RANK);
}

int main(void) {
    MPI_Session session;
    MPI_Errhandler mine;
    MPI_Group group;
    int value = 0;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    OK(MPI_Comm_create_from_group(group, "handler", MPI_INFO_NULL, mine, &expected));
    OK(MPI_Errhandler_free(&mine));
    OK(MPI_Group_free(&group));
    FAILS(MPI_ERR_RANK, MPI_Send(&value, 1, MPI_INT, 1000, 0, expected));
    CHECK(calls == 1);
    OK(MPI_Comm_free(&expected));
    OK(MPI_Session_finalize(&session));
    return end();
}
