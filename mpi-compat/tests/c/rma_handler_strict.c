/* The window's error handler is called for errors, with the window.
   ranks 2
   not on peers: MPICH as it is built there does not check ranks */
#include "check.h"

static int calls_of_handler;
static MPI_Win win;

static void handler(MPI_Win *of, int *code, ...) { calls_of_handler += *of == win && class_of(*code) == MPI_ERR_RANK; }

int main(void) {
    int base, value = 1;
    MPI_Errhandler mine;
    start();
    OK(MPI_Win_create(&base, sizeof base, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_create_errhandler(handler, &mine));
    OK(MPI_Win_set_errhandler(win, mine));
    OK(MPI_Errhandler_free(&mine));
    OK(MPI_Win_fence(0, win));
    FAILS(MPI_ERR_RANK, MPI_Put(&value, 1, MPI_INT, 77, 0, 1, MPI_INT, win));
    CHECK(calls_of_handler == 1);
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_free(&win));
    return finish();
}
