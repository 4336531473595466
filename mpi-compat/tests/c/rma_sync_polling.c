/* A rank waits for a value that another rank puts, by loads and MPI_Win_sync.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int one = 1, *model, flag, *memory = begin(1);
    *memory = 0;
    OK(MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    if (me == 0) {
        PUT(&one, 1, size - 1, 0);
        OK(MPI_Win_flush(size - 1, win));
    }
    if (me == size - 1) {
        /* Calls of MPI make progress for a put that needs the target. */
        while (*(volatile int *)memory == 0) {
            OK(MPI_Win_sync(win));
            OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        }
        CHECK(*memory == 1 && *model == MPI_WIN_UNIFIED);
    }
    OK(MPI_Win_unlock_all(win));
    return done();
}
