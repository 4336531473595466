/* A communicator of a session has the attribute MPI_TAG_UB; the program's attributes are deleted with it.
   ranks 1 2 */
#include "session.h"

static int deleted;

static int remove_it(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    deleted++;
    return MPI_SUCCESS;
}

int main(void) {
    MPI_Session session;
    MPI_Comm comm;
    int *bound, flag = 0, key;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    comm = comm_of(session, "mpi://WORLD", "attributes");
    OK(MPI_Comm_get_attr(comm, MPI_TAG_UB, &bound, &flag));
    CHECK(flag && *bound >= 32767);
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, remove_it, &key, NULL));
    OK(MPI_Comm_set_attr(comm, key, &key));
    OK(MPI_Comm_free(&comm));
    CHECK(deleted == 1);
    OK(MPI_Comm_free_keyval(&key));
    OK(MPI_Session_finalize(&session));
    return end();
}
