/* Functions that are not implemented raise an error.
   not on peers: they have it */
#include "check.h"

static int calls;
static void handler(MPI_Comm *comm, int *code, ...) {
    calls += *comm == MPI_COMM_WORLD && class_of(*code) == MPI_ERR_UNSUPPORTED_OPERATION;
}

int main(void) {
    MPI_Errhandler mine;
    MPI_File file;
    start();
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
    FAILS(MPI_ERR_UNSUPPORTED_OPERATION,
        MPI_File_open(MPI_COMM_WORLD, "none", MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    CHECK(calls == 1);
    OK(MPI_Errhandler_free(&mine));
    return finish();
}
