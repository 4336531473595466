/* The error handler that is passed to a constructor is called for all errors of that call, also of its arguments, with
   the null handle of the new object.
   ranks 1 2
   not on peers: how null pointers fail is not promised */
#include "check.h"

static int comm_errors, session_errors;

static void of_comms(MPI_Comm *comm, int *code, ...) {
    CHECK(*comm == MPI_COMM_NULL && *code != MPI_SUCCESS);
    comm_errors++;
}

static void of_sessions(MPI_Session *session, int *code, ...) {
    CHECK(*session == MPI_SESSION_NULL && *code != MPI_SUCCESS);
    session_errors++;
}

/* The error of the call has called the handler once. */
#define HANDLED(errors, class, call) \
    do { \
        errors = 0; \
        FAILS(class, call); \
        CHECK(errors == 1); \
    } while (0)

int main(void) {
    char tag[2 * MPI_MAX_STRINGTAG_LEN];
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Errhandler handler, handler_of_sessions;
    MPI_Group group, world;
    MPI_Info info;
    MPI_Session session;

    OK(MPI_Comm_create_errhandler(of_comms, &handler));
    OK(MPI_Session_create_errhandler(of_sessions, &handler_of_sessions));
    HANDLED(session_errors, MPI_ERR_ARG, MPI_Session_init(MPI_INFO_NULL, handler_of_sessions, NULL));
    OK(MPI_Info_create(&info));
    MPI_Info freed = info;
    OK(MPI_Info_free(&info));
    HANDLED(session_errors, MPI_ERR_INFO, MPI_Session_init(freed, handler_of_sessions, &session));
    FAILS(MPI_ERR_ARG, MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, NULL));

    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Group_from_session_pset(session, "mpi://SELF", &group));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &world));
    memset(tag, 'x', sizeof tag);
    tag[sizeof tag - 1] = 0;

    HANDLED(comm_errors, MPI_ERR_ARG, MPI_Comm_create_from_group(group, "a", MPI_INFO_NULL, handler, NULL));
    HANDLED(comm_errors, MPI_ERR_ARG, MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, handler, &comm));
    HANDLED(comm_errors, MPI_ERR_ARG, MPI_Comm_create_from_group(group, NULL, MPI_INFO_NULL, handler, &comm));
    HANDLED(comm_errors, MPI_ERR_GROUP, MPI_Comm_create_from_group(MPI_GROUP_NULL, "a", MPI_INFO_NULL, handler, &comm));
    HANDLED(comm_errors, MPI_ERR_INFO, MPI_Comm_create_from_group(group, "a", freed, handler, &comm));
    CHECK(comm == MPI_COMM_NULL);
    FAILS(MPI_ERR_ARG, MPI_Comm_create_from_group(group, "a", MPI_INFO_NULL, MPI_ERRORS_RETURN, NULL));

#define INTER(local, leader, remote, tag, new) \
    MPI_Intercomm_create_from_groups(local, leader, remote, 0, tag, MPI_INFO_NULL, handler, new)
    HANDLED(comm_errors, MPI_ERR_ARG, INTER(group, 0, world, "a", NULL));
    HANDLED(comm_errors, MPI_ERR_ARG, INTER(group, 0, world, tag, &comm));
    HANDLED(comm_errors, MPI_ERR_GROUP, INTER(MPI_GROUP_NULL, 0, world, "a", &comm));
    HANDLED(comm_errors, MPI_ERR_GROUP, INTER(group, 0, MPI_GROUP_NULL, "a", &comm));
    HANDLED(comm_errors, MPI_ERR_GROUP, INTER(group, 0, world, "a", &comm));
    HANDLED(comm_errors, MPI_ERR_RANK, INTER(group, 1, world, "a", &comm));

    /* The new objects have the handler. */
    OK(MPI_Comm_create_from_group(world, "b", MPI_INFO_NULL, handler, &comm));
    MPI_Errhandler got;
    OK(MPI_Comm_get_errhandler(comm, &got));
    CHECK(got == handler);
    OK(MPI_Errhandler_free(&got));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_Errhandler_free(&handler_of_sessions));
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&world));
    OK(MPI_Session_finalize(&session));
    return end();
}
