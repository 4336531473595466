/* An error of a call goes to the handler of the communicator among its arguments, at any position. */
#include "check.h"

static int calls;
static MPI_Comm seen;

static void handler(MPI_Comm *comm, int *code, ...) {
    (void)code;
    calls++;
    seen = *comm;
}

int main(void) {
    MPI_Comm comm;
    MPI_Errhandler mine;
    MPI_Request request;
    int a = 0, b = 0;
    start();
    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Comm_set_errhandler(comm, mine));
    /* The code returned after the handler is not checked. */
    MPI_Allreduce(&a, &b, 1, MPI_DOUBLE, MPI_BAND, comm);
    MPI_Bcast(&a, 1, MPI_INT, 9, comm);
    MPI_Ibcast(&a, -1, MPI_INT, 0, comm, &request);
    MPI_Send(&a, 1, MPI_INT, 9, 0, comm);
    CHECK(calls == 4 && seen == comm);
    /* A communicator that is null has no handler, and the errors of others are not its. */
    FAILS(MPI_ERR_COMM, MPI_Bcast(&a, 1, MPI_INT, 0, MPI_COMM_NULL));
    FAILS(MPI_ERR_ROOT, MPI_Bcast(&a, 1, MPI_INT, 9, MPI_COMM_SELF));
    CHECK(calls == 4);
    OK(MPI_Errhandler_free(&mine));
    OK(MPI_Comm_free(&comm));
    return finish();
}
