/* A window that was made with no_locks must not be locked, and MPI_PROC_NULL has no memory to lock.
   ranks 2
   says VERIFY MPI_WIN_LOCK_ALL(1): win was created with no_locks
   says VERIFY MPI_WIN_LOCK(1): win was created with no_locks
   says VERIFY MPI_WIN_LOCK(0): rank is MPI_PROC_NULL, which has no memory
   says VERIFY MPI_WIN_FLUSH(0): rank is MPI_PROC_NULL, which has no memory
   says VERIFY MPI_WIN_FLUSH_LOCAL(0): rank is MPI_PROC_NULL, which has no memory
   says VERIFY MPI_WIN_UNLOCK(0): rank is MPI_PROC_NULL, which has no memory */
#define HANDLED (rank == 0 ? 4 : 2)
#include "check.h"

int main(void) {
    MPI_Win win;
    MPI_Info info;
    int memory = 0, peer;
    start();
    peer = WRONG_AT(0, MPI_PROC_NULL, 1 - rank);
    MPI_Info_create(&info);
    MPI_Info_set(info, "no_locks", IS_WRONG ? "true" : "false");
    MPI_Win_create(&memory, 4, 4, info, MPI_COMM_WORLD, &win);
    handle_win(win);
    if (rank == 1 && MPI_Win_lock_all(MPI_MODE_NOCHECK, win) == MPI_SUCCESS) MPI_Win_unlock_all(win);
    if (rank == 0 || MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win) == MPI_SUCCESS) {
        if (rank == 0) MPI_Win_lock(MPI_LOCK_SHARED, peer, 0, win);
        MPI_Win_flush(peer, win);
        MPI_Win_flush_local(peer, win);
        MPI_Win_unlock(peer, win);
    }
    MPI_Win_free(&win);
    MPI_Info_free(&info);
    return finish();
}
