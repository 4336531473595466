/* Flushed values are visible at the target when a message that was sent after the flush has arrived.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, *memory = begin(1);
    OK(MPI_Win_lock_all(0, win));
    for (int round = 0; round < 30; round++) {
        value = 10 * round + me;
        PUT(&value, 1, right(), 0);
        OK(MPI_Win_flush(right(), win));
        OK(MPI_Sendrecv(NULL, 0, MPI_INT, right(), 0, NULL, 0, MPI_INT, left(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Win_sync(win));
        CHECK(*memory == 10 * round + left());
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Win_unlock_all(win));
    return done();
}
