/* If two puts have a flush between them, the target never sees the second without the first.
   ranks 2 3 */
#include "rma.h"

int main(void) {
    int one = 1, got[2];
    int *memory = begin(2);
    memory[0] = memory[1] = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    if (me == 0) {
        for (int round = 1; round <= 200; round++) {
            one = round;
            OK(MPI_Accumulate(&one, 1, MPI_INT, size - 1, 0, 1, MPI_INT, MPI_REPLACE, win));
            OK(MPI_Win_flush(size - 1, win));
            OK(MPI_Accumulate(&one, 1, MPI_INT, size - 1, 1, 1, MPI_INT, MPI_REPLACE, win));
            OK(MPI_Win_flush(size - 1, win));
        }
    } else {
        do {
            OK(MPI_Fetch_and_op(NULL, &got[1], MPI_INT, size - 1, 1, MPI_NO_OP, win));
            OK(MPI_Win_flush(size - 1, win));
            OK(MPI_Fetch_and_op(NULL, &got[0], MPI_INT, size - 1, 0, MPI_NO_OP, win));
            OK(MPI_Win_flush(size - 1, win));
            CHECK(got[0] >= got[1]);
        } while (got[1] < 200);
    }
    OK(MPI_Win_unlock_all(win));
    return done();
}
