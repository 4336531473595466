/* The error handler of a session: set at its start, called with its handle for errors of calls on it, changed,
   queried.
   not on peers: MPICH finds no fault here */
#include "session.h"

static int calls, last;
static MPI_Session expected;

static void handler(MPI_Session *session, int *code, ...) {
    calls++;
    last = class_of(*code);
    CHECK(*session == expected);
}

int main(void) {
    MPI_Session session;
    MPI_Errhandler mine, same;
    MPI_Group group;
    OK(MPI_Session_create_errhandler(handler, &mine));
    OK(MPI_Session_init(MPI_INFO_NULL, mine, &session));
    expected = session;
    CHECK(MPI_Group_from_session_pset(session, "no such set", &group) != MPI_SUCCESS);
    CHECK(calls == 1);
    OK(MPI_Session_get_errhandler(session, &same));
    CHECK(same == mine);
    OK(MPI_Errhandler_free(&same));
    OK(MPI_Session_call_errhandler(session, MPI_ERR_OTHER));
    CHECK(calls == 2 && last == MPI_ERR_OTHER);
    OK(MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN));
    CHECK(MPI_Group_from_session_pset(session, "no such set", &group) != MPI_SUCCESS);
    CHECK(calls == 2);
    OK(MPI_Errhandler_free(&mine));
    OK(MPI_Session_finalize(&session));
    return end();
}
