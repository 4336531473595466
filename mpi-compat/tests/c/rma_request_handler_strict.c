/* An error of a request on a window goes to the handler of the window, not to that of MPI_COMM_SELF.
   ranks 2 3
   code any
   says got the error
   not on peers: they end the job */
#include "rma.h"

#include <signal.h>
#include <unistd.h>

static int on_window, elsewhere;

static void handler(MPI_Win *which, int *code, ...) {
    on_window += *which == win && class_of(*code) == MPI_ERR_PROC_ABORTED;
}

static void other(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    elsewhere++;
}

int main(void) {
    int value = 0, code, memory[1] = {-1};
    MPI_Request request;
    MPI_Errhandler mine, others;
    /* The owner itself serves its memory; mapped memory could be read after the owner's end. */
    setenv("FARSIDE_SHM_USER_MEMORY", "ring", 1);
    start();
    me = rank_of(MPI_COMM_WORLD);
    OK(MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_create_errhandler(handler, &mine));
    OK(MPI_Win_set_errhandler(win, mine));
    OK(MPI_Comm_create_errhandler(other, &others));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, others));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Rget(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(value == -1);
    before_end_of(1, MPI_COMM_WORLD);
    if (me == 1) raise(SIGKILL);
    do {
        code = MPI_Rget(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win, &request);
        if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    } while (code == MPI_SUCCESS);
    CHECK(class_of(code) == MPI_ERR_PROC_ABORTED && on_window == 1 && elsewhere == 0);
    if (failures == 0) printf("got the error\n");
    fflush(stdout);
    _exit(1);
}
