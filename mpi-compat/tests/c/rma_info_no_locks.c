/* The key no_locks is a hint: a window that was made with it can still be locked in every way.
   ranks 2 3 */
#include "rma.h"

/* Each rank adds 1 at rank 0 under each kind of lock. */
static void count_under_locks(int *memory) {
    const int one = 1;
    memory[0] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
    ADD(&one, 1, 0, 0);
    OK(MPI_Win_unlock(0, win));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    ADD(&one, 1, 0, 0);
    OK(MPI_Win_unlock(0, win));
    for (int assert = 0; assert <= MPI_MODE_NOCHECK; assert += MPI_MODE_NOCHECK) {
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_Win_lock_all(assert, win));
        ADD(&one, 1, 0, 0);
        OK(MPI_Win_flush_all(win));
        OK(MPI_Win_unlock_all(win));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    CHECK(me > 0 || memory[0] == 4 * size);
    OK(MPI_Win_unlock(me, win));
}

int main(void) {
    MPI_Info info;
    int *memory = begin(2), own[2];
    OK(MPI_Win_free(&win));
    info = info_with("no_locks", "true");
    OK(MPI_Win_allocate(sizeof own, sizeof(int), info, MPI_COMM_WORLD, &memory, &win));
    CHECK(has_hint(win, "no_locks", "true"));
    count_under_locks(memory);
    OK(MPI_Win_free(&win));
    OK(MPI_Win_create(own, sizeof own, sizeof(int), info, MPI_COMM_WORLD, &win));
    count_under_locks(own);
    OK(MPI_Win_free(&win));
    OK(MPI_Win_create(own, sizeof own, sizeof(int), me == 0 ? info : MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Info_free(&info));
    count_under_locks(own);
    return done();
}
