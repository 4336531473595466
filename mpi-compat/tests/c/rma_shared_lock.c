/* A lock of a shared window keeps out the loads and stores of others.
   ranks 2 4 */
#include "check.h"

enum { ROUNDS = 100 };

int main(void) {
    int size, unit, *base;
    MPI_Aint bytes;
    MPI_Win win;
    start();
    MPI_Comm node = sharing();
    int me = rank_of(node);
    MPI_Comm_size(node, &size);
    OK(MPI_Win_allocate_shared(me == 0 ? 4 : 0, 4, MPI_INFO_NULL, node, &base, &win));
    OK(MPI_Win_shared_query(win, 0, &bytes, &unit, &base));
    volatile int *counter = base;
    if (me == 0) *counter = 0;
    MPI_Barrier(node);
    for (int i = 0; i < ROUNDS; i++) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        int value = *counter;
        for (volatile int wait = 0; wait < 100; wait++) {}
        *counter = value + 1;
        OK(MPI_Win_unlock(0, win));
    }
    MPI_Barrier(node);
    CHECK(*counter == ROUNDS * size);
    OK(MPI_Win_free(&win));
    return finish();
}
