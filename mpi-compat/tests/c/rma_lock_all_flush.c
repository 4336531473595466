/* In an epoch on all targets, flush completes operations at the target, flush_local at the origin; the _all forms for
   all targets.
   ranks 1 2 4 */
#include "rma.h"

int main(void) {
    int *base = begin(8);
    int *got = malloc((size_t)size * sizeof(int));
    OK(MPI_Win_lock_all(0, win));
    for (int round = 0; round < 30; round++) {
        for (int t = 0; t < size; t++) {
            int value = 100 * round + me;
            OK(MPI_Put(&value, 1, MPI_INT, t, me, 1, MPI_INT, win));
            OK(MPI_Win_flush_local(t, win));
            value = -1;
            if (round % 2) OK(MPI_Win_flush(t, win));
        }
        if (round % 2 == 0) OK(MPI_Win_flush_all(win));
        for (int t = 0; t < size; t++) OK(MPI_Get(&got[t], 1, MPI_INT, t, me, 1, MPI_INT, win));
        OK(MPI_Win_flush_local_all(win));
        for (int t = 0; t < size; t++) CHECK(got[t] == 100 * round + me);
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_Win_sync(win));
        for (int i = 0; i < size; i++) CHECK(((volatile int *)base)[i] == 100 * round + i);
        OK(MPI_Win_sync(win));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    OK(MPI_Win_unlock_all(win));
    free(got);
    return done();
}
