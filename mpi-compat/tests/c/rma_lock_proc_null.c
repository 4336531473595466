/* Locks of MPI_PROC_NULL, and calls that complete operations there, have no effect.
   ranks 2 */
#include "rma.h"

int main(void) {
    int value = 3, *memory = begin(1);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, win));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, win));
    PUT(&value, 1, MPI_PROC_NULL, 0);
    PUT(&value, 1, right(), 0);
    OK(MPI_Win_flush(MPI_PROC_NULL, win));
    OK(MPI_Win_flush_local(MPI_PROC_NULL, win));
    OK(MPI_Win_unlock(right(), win));
    OK(MPI_Win_unlock(MPI_PROC_NULL, win));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, MPI_PROC_NULL, 0, win));
    OK(MPI_Win_unlock(MPI_PROC_NULL, win));
    FAILS(MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win));
    CHECK(*memory == value);
    OK(MPI_Win_unlock(me, win));
    return done();
}
