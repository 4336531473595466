/* Locks on several targets at a time, released in another order; all ranks hold shared locks at once.
   ranks 3 4 */
#include "rma.h"

int main(void) {
    int *base = begin(4);
    for (int round = 1; round < 10; round++) {
        int value = 10 * round + me;
        for (int t = 0; t < size; t++) OK(MPI_Win_lock(MPI_LOCK_SHARED, t, 0, win));
        for (int t = 0; t < size; t++) OK(MPI_Put(&value, 1, MPI_INT, t, me, 1, MPI_INT, win));
        /* All ranks hold all locks here. */
        MPI_Barrier(MPI_COMM_WORLD);
        for (int t = 0; t < size; t++) OK(MPI_Win_unlock((t + me) % size, win));
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
        for (int i = 0; i < size; i++) CHECK(base[i] == 10 * round + i);
        OK(MPI_Win_unlock(me, win));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return done();
}
