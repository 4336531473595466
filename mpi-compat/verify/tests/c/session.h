/* Shared by programs with sessions. */
#ifndef SESSION_H
#define SESSION_H

#include "check.h"

/* A communicator of all processes, by a new session. */
static inline MPI_Comm open_session(MPI_Session *session) {
    MPI_Group group;
    MPI_Comm comm;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, session);
    MPI_Group_from_session_pset(*session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "verify", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    handle(comm);
    return comm;
}

/* Good calls go on; the session ends. */
static inline void close_session(MPI_Session *session, MPI_Comm *comm) {
    int sum = -1;
    if (MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, *comm) != MPI_SUCCESS || sum != size * (size - 1) / 2)
        printf("FAILED rank %d: a good call after it\n", rank);
    if (MPI_Comm_disconnect(comm) != MPI_SUCCESS) printf("FAILED rank %d: disconnect\n", rank);
    if (MPI_Session_finalize(session) != MPI_SUCCESS) printf("FAILED rank %d: the session's end\n", rank);
}

static inline int ended(int wanted) {
    if (handled != wanted) printf("FAILED rank %d: %d errors, not %d\n", rank, handled, wanted);
    printf("ended\n");
    return 0;
}

#endif
