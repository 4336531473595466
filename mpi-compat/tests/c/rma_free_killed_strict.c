/* An error of MPI_Win_free goes to the error handler of the window, which stays valid.
   ranks 2
   code any
   says returned
   not on peers: they end the job, or wait */
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(void) {
    int *base;
    MPI_Win win;
    MPI_Init(NULL, NULL);
    OK(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank_of(MPI_COMM_WORLD) == 1) raise(SIGKILL);
    FAILS(MPI_ERR_PROC_ABORTED, MPI_Win_free(&win));
    CHECK(win != MPI_WIN_NULL);
    if (failures == 0) printf("returned\n");
    fflush(stdout);
    _exit(1);
}
