/* An exclusive lock excludes others: read, add and write back, by operations at other ranks and by load and store in
   local memory.
   ranks 1 2 4 */
#include "check.h"

enum { ROUNDS = 200 };

int main(void) {
    int size, *base, value, next;
    MPI_Win win;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win));
    *base = 0;
    OK(MPI_Win_unlock(me, win));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < ROUNDS; i++) {
        int target = (me + i) % size;
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win));
        if (target == me) {
            *(volatile int *)base += 1;
        } else {
            OK(MPI_Get(&value, 1, MPI_INT, target, 0, 1, MPI_INT, win));
            OK(MPI_Win_flush(target, win));
            next = value + 1;
            OK(MPI_Put(&next, 1, MPI_INT, target, 0, 1, MPI_INT, win));
        }
        OK(MPI_Win_unlock(target, win));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    CHECK(*base == ROUNDS);
    OK(MPI_Win_unlock(me, win));
    OK(MPI_Win_free(&win));
    return finish();
}
