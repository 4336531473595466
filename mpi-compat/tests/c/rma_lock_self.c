/* A rank locks its own memory to load and store it, between accesses of others.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int one = 1, *memory = begin(1);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win));
    *memory = 0;
    OK(MPI_Win_unlock(me, win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 20; i++) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, win));
        ADD(&one, 1, right(), 0);
        OK(MPI_Win_unlock(right(), win));
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win));
        *memory += 100;
        OK(MPI_Win_unlock(me, win));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    CHECK(*memory == 2020);
    OK(MPI_Win_unlock(me, win));
    return done();
}
