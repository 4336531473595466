/* A user-defined handler gets the communicator and the code, and may call MPI. */
#include "check.h"

static int calls, last_class;
static MPI_Comm last_comm;

static void handler(MPI_Comm *comm, int *code, ...) {
    int size = 0;
    calls++;
    last_comm = *comm;
    last_class = class_of(*code);
    MPI_Comm_size(MPI_COMM_SELF, &size);
    CHECK(size == 1);
}

int main(void) {
    MPI_Errhandler mine, found;
    start();
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
    OK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &found));
    CHECK(found == mine);
    OK(MPI_Errhandler_free(&found));
    CHECK(found == MPI_ERRHANDLER_NULL);
    OK(MPI_Errhandler_free(&mine));

    /* The handler stays valid until no communicator has it. */
    MPI_Comm_delete_attr(MPI_COMM_WORLD, MPI_KEYVAL_INVALID);
    CHECK(calls == 1 && last_comm == MPI_COMM_WORLD && last_class == MPI_ERR_KEYVAL);
    OK(MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_RANK));
    CHECK(calls == 2 && last_class == MPI_ERR_RANK);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CHECK(MPI_Comm_delete_attr(MPI_COMM_WORLD, MPI_KEYVAL_INVALID) != MPI_SUCCESS);
    CHECK(calls == 2);
    return finish();
}
