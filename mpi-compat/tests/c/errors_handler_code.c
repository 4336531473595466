/* What an error handler of the program leaves as the code is what the call returns.
   not on peers: MPICH returns the class of the error */
#include "check.h"

static int calls;

static void forgive(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    calls++;
    *code = MPI_SUCCESS;
}

static void replace(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    calls++;
    *code = MPI_ERR_OTHER;
}

int main(void) {
    MPI_Errhandler one, other;
    int word = 0;
    start();
    OK(MPI_Comm_create_errhandler(forgive, &one));
    OK(MPI_Comm_create_errhandler(replace, &other));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, one));
    OK(MPI_Send(&word, -1, MPI_INT, 0, 0, MPI_COMM_WORLD));
    CHECK(calls == 1);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, other));
    FAILS(MPI_ERR_OTHER, MPI_Send(&word, -1, MPI_INT, 0, 0, MPI_COMM_WORLD));
    CHECK(calls == 2);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&one));
    OK(MPI_Errhandler_free(&other));
    return finish();
}
