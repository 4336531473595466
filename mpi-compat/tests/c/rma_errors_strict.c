/* Wrong arguments and wrong synchronization are errors of their classes, and the window stays usable.
   ranks 2
   not on peers: what is erroneous has classes of their own there, or waits */
#include "rma.h"

int main(void) {
    int base[4] = {0}, value = 1;
    MPI_Win win, none = MPI_WIN_NULL;
    MPI_Group world, self, other;
    MPI_Comm inter;
    start();
    int me = rank_of(MPI_COMM_WORLD), peer = 1 - me;
    FAILS(MPI_ERR_DISP, MPI_Win_create(base, 16, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    FAILS(MPI_ERR_DISP, MPI_Win_create(base, 16, -4, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    FAILS(MPI_ERR_SIZE, MPI_Win_create(base, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    FAILS(MPI_ERR_COMM, MPI_Win_create(base, 16, 1, MPI_INFO_NULL, MPI_COMM_NULL, &win));
    OK(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, peer, 3, &inter));
    OK(MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_COMM, MPI_Win_create(base, 16, 1, MPI_INFO_NULL, inter, &win));
    OK(MPI_Comm_free(&inter));
    /* A call that one rank refuses has not been made there: its next one makes the window. */
    if (me == 0) FAILS(MPI_ERR_SIZE, MPI_Win_create(base, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_create(base, 16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_free(&win));
    FAILS(MPI_ERR_ARG, MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_SELF, NULL, &win));
    FAILS(MPI_ERR_WIN, MPI_Win_fence(0, MPI_WIN_NULL));
    FAILS(MPI_ERR_WIN, MPI_Win_free(&none));

    OK(MPI_Win_create(base, sizeof base, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, peer, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_unlock(peer, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_unlock_all(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush(peer, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush_all(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush_local(peer, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush_local_all(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_complete(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_wait(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_test(win, &value));
    FAILS(MPI_ERR_ASSERT, MPI_Win_fence(MPI_MODE_NOCHECK, win));
    FAILS(MPI_ERR_ASSERT, MPI_Win_fence(1 << 30, win));
    FAILS(MPI_ERR_ASSERT, MPI_Win_lock(MPI_LOCK_SHARED, 0, MPI_MODE_NOPUT, win));
    FAILS(MPI_ERR_LOCKTYPE, MPI_Win_lock(7, 0, 0, win));
    FAILS(MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, 2, 0, win));
    FAILS(MPI_ERR_RANK, MPI_Win_lock(MPI_LOCK_SHARED, -9, 0, win));

    OK(MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_fence(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_free(&win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, me, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush(me, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_unlock(me, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, peer, 4, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(base, 4, MPI_INT, peer, 1, 4, MPI_INT, win));
    FAILS(MPI_ERR_DISP, MPI_Put(&value, 1, MPI_INT, peer, -1, 1, MPI_INT, win));
    FAILS(MPI_ERR_DISP, MPI_Put(&value, 1, MPI_INT, peer, INT64_MAX / 2, 1, MPI_INT, win));
    FAILS(MPI_ERR_RANK, MPI_Put(&value, 1, MPI_INT, 2, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_COUNT, MPI_Put(&value, -1, MPI_INT, peer, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_COUNT, MPI_Put(&value, 1, MPI_INT, peer, 0, -1, MPI_INT, win));
    FAILS(MPI_ERR_TYPE, MPI_Put(&value, 1, MPI_DATATYPE_NULL, peer, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_BUFFER, MPI_Put(NULL, 1, MPI_INT, peer, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_ARG, MPI_Put(&value, 1, MPI_INT, peer, 0, 1, MPI_SHORT, win));
    OK(MPI_Put(&value, 1, MPI_INT, peer, 3, 1, MPI_INT, win));
    OK(MPI_Win_unlock(peer, win));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(base[3] == 1);

    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 1, &me, &self));
    OK(MPI_Group_incl(world, 1, &peer, &other));
    FAILS(MPI_ERR_GROUP, MPI_Win_post(MPI_GROUP_NULL, 0, win));
    OK(MPI_Win_post(self, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_post(self, 0, win));
    OK(MPI_Win_start(self, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, peer, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_start(self, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush_all(win));
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, peer, 0, 1, MPI_INT, win));
    end_window(&win);
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&self));
    OK(MPI_Group_free(&other));
    return finish();
}
