/* MPI_MODE_NOCHECK, if no other rank holds a lock.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, got = -1, turn;
    begin(1);
    for (turn = 0; turn < size; turn++) {
        if (turn == me) {
            value = 300 + me;
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), MPI_MODE_NOCHECK, win));
            PUT(&value, 1, right(), 0);
            OK(MPI_Win_unlock(right(), win));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    GET(&got, 1, me, 0);
    OK(MPI_Win_unlock_all(win));
    CHECK(got == 300 + left());
    return done();
}
