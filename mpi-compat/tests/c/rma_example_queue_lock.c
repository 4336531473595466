/* A queue lock of words in a window, by exchange and compare-and-swap: rank 0 has the tail, and each rank is notified
   by its predecessor.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    /* Memory of each rank: whether it waits, and the next rank in the queue; at rank 0 also the last rank and a counter. */
    enum { WAITS, NEXT, LAST, COUNT };
    int nobody = -1, self, before, found, one = 1, zero = 0, count, *memory = begin(4);
    memory[WAITS] = 0;
    memory[COUNT] = 0;
    self = me;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < 12; i++) {
        OK(MPI_Accumulate(&nobody, 1, MPI_INT, me, NEXT, 1, MPI_INT, MPI_REPLACE, win));
        OK(MPI_Accumulate(&one, 1, MPI_INT, me, WAITS, 1, MPI_INT, MPI_REPLACE, win));
        OK(MPI_Win_flush(me, win));
        OK(MPI_Fetch_and_op(&self, &before, MPI_INT, 0, LAST, MPI_REPLACE, win));
        OK(MPI_Win_flush(0, win));
        if (before != -1) {
            OK(MPI_Accumulate(&self, 1, MPI_INT, before, NEXT, 1, MPI_INT, MPI_REPLACE, win));
            OK(MPI_Win_flush(before, win));
            do {
                OK(MPI_Fetch_and_op(NULL, &found, MPI_INT, me, WAITS, MPI_NO_OP, win));
                OK(MPI_Win_flush(me, win));
            } while (found == 1);
        }
        GET(&count, 1, 0, COUNT);
        OK(MPI_Win_flush(0, win));
        count++;
        PUT(&count, 1, 0, COUNT);
        OK(MPI_Win_flush(0, win));
        OK(MPI_Compare_and_swap(&nobody, &self, &found, MPI_INT, 0, LAST, win));
        OK(MPI_Win_flush(0, win));
        if (found != me) {
            do {
                OK(MPI_Fetch_and_op(NULL, &found, MPI_INT, me, NEXT, MPI_NO_OP, win));
                OK(MPI_Win_flush(me, win));
            } while (found == -1);
            OK(MPI_Accumulate(&zero, 1, MPI_INT, found, WAITS, 1, MPI_INT, MPI_REPLACE, win));
            OK(MPI_Win_flush(found, win));
        }
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    GET(&count, 1, 0, COUNT);
    OK(MPI_Win_unlock(0, win));
    CHECK(count == 12 * size);
    return done();
}
