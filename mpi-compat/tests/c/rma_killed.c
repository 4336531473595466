/* A rank is killed while others are in epochs with it: calls that wait for it fail in bounded time.
   ranks 3
   code any
   says got the error
   not on peers: they end the job, or wait */
#include "check.h"
#include <signal.h>
#include <unistd.h>

int main(void) {
    int value = 1, *base, fails = 0;
    MPI_Win fence, passive, pscw;
    MPI_Group world, victim;
    start();
    int me = rank_of(MPI_COMM_WORLD), one = 1;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 1, &one, &victim));
    OK(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &fence));
    OK(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &passive));
    OK(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &pscw));
    OK(MPI_Win_set_errhandler(fence, MPI_ERRORS_RETURN));
    OK(MPI_Win_set_errhandler(passive, MPI_ERRORS_RETURN));
    OK(MPI_Win_set_errhandler(pscw, MPI_ERRORS_RETURN));
    OK(MPI_Win_fence(0, fence));
    if (me == 1) {
        /* The lock of its own memory is never released. */
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, passive));
        before_end_of(1, MPI_COMM_WORLD);
        raise(SIGKILL);
    }
    OK(MPI_Win_post(victim, 0, pscw));
    before_end_of(1, MPI_COMM_WORLD);
    FAILS(MPI_ERR_PROC_ABORTED, MPI_Win_wait(pscw));
    int code = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, passive);
    if (code == MPI_SUCCESS) code = MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, passive);
    if (code == MPI_SUCCESS) code = MPI_Win_unlock(1, passive);
    CHECK(class_of(code) == MPI_ERR_PROC_ABORTED);
    fails += MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, fence) != MPI_SUCCESS;
    FAILS(MPI_ERR_PROC_ABORTED, MPI_Win_fence(0, fence));
    if (failures == 0) printf("got the error\n");
    fflush(stdout);
    _exit(1);
}
