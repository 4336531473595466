/* Erroneous uses of sessions.
   ranks 1 2
   not on peers: they say so by other classes, or do not look */
#include "session.h"

int main(void) {
    MPI_Session session, old;
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Errhandler of_comm;
    MPI_Info info;
    int n = 0, len = 64, rank;
    char name[64], *tag;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    FAILS(MPI_ERR_ARG, MPI_Group_from_session_pset(session, "mpi://NOBODY", &group));
    FAILS(MPI_ERR_ARG, MPI_Group_from_session_pset(session, NULL, &group));
    FAILS(MPI_ERR_ARG, MPI_Session_get_pset_info(session, "", &info));
    FAILS(MPI_ERR_ARG, MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 2, &len, name));
    FAILS(MPI_ERR_ARG, MPI_Session_get_nth_pset(session, MPI_INFO_NULL, -1, &len, name));
    len = -1;
    FAILS(MPI_ERR_ARG, MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &len, name));
    FAILS(MPI_ERR_ARG, MPI_Session_get_num_psets(session, MPI_INFO_NULL, NULL));
    FAILS(MPI_ERR_BUFFER, MPI_Session_flush_buffer(session));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    FAILS(MPI_ERR_ARG, MPI_Comm_create_from_group(group, NULL, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    tag = malloc(MPI_MAX_STRINGTAG_LEN + 1);
    memset(tag, 'a', MPI_MAX_STRINGTAG_LEN);
    tag[MPI_MAX_STRINGTAG_LEN] = 0;
    FAILS(MPI_ERR_ARG, MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    free(tag);
    FAILS(MPI_ERR_GROUP, MPI_Comm_create_from_group(MPI_GROUP_NULL, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Group_rank(group, &rank));
    FAILS(MPI_ERR_RANK, MPI_Intercomm_create_from_groups(group, 7, group, 0, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    /* Both groups have the same members: the leader reports that, and the others report that it has failed. */
    FAILS(rank == 0 ? MPI_ERR_GROUP : MPI_ERR_OTHER,
          MPI_Intercomm_create_from_groups(group, 0, group, 0, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Group_free(&group));
    old = session;
    OK(MPI_Session_finalize(&session));
    /* No handler is called for these errors: there is no session and no communicator any more. */
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    start();
    FAILS(MPI_ERR_SESSION, MPI_Session_get_num_psets(old, MPI_INFO_NULL, &n));
    FAILS(MPI_ERR_SESSION, MPI_Session_get_num_psets(MPI_SESSION_NULL, MPI_INFO_NULL, &n));
    FAILS(MPI_ERR_SESSION, MPI_Session_finalize(&old));
    OK(MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)main, &of_comm));
    FAILS(MPI_ERR_ERRHANDLER, MPI_Session_init(MPI_INFO_NULL, of_comm, &old));
    OK(MPI_Errhandler_free(&of_comm));
    OK(MPI_Session_finalize(&session));
    return finish();
}
