/* Memory that is exposed by MPI_Win_post cannot be locked, nor locked memory exposed: MPI_ERR_RMA_SYNC at the rank
   that does both.
   ranks 1 2
   not on peers: MPICH does not look */
#include "rma.h"

int main(void) {
    begin(1);
    int own = me;
    MPI_Group self = group_of(1, &own);
    OK(MPI_Win_post(self, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, win));
    OK(MPI_Win_start(self, 0, win));
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_post(self, 0, win));
    OK(MPI_Win_unlock(me, win));
    OK(MPI_Win_lock_all(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_post(self, 0, win));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Group_free(&self));
    return done();
}
