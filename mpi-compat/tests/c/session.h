/* Shared by programs with sessions. */
#ifndef SESSION_H
#define SESSION_H

#include "check.h"

/* A communicator of all processes of a set. */
static inline MPI_Comm comm_of(MPI_Session session, const char *set, const char *tag) {
    MPI_Group group;
    MPI_Comm comm;
    OK(MPI_Group_from_session_pset(session, set, &group));
    OK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    OK(MPI_Group_free(&group));
    return comm;
}

#endif
