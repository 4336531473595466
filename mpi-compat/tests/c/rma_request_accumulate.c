/* MPI_Raccumulate and MPI_Rget_accumulate: sums are right, and former values are available after the wait.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int one = 1, old = -1, sum, *memory = begin(2);
    MPI_Request requests[2];
    memory[0] = memory[1] = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Raccumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win, &requests[0]));
    OK(MPI_Rget_accumulate(&one, 1, MPI_INT, &old, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, win, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(old >= 0 && old < size);
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Allreduce(&old, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size * (size - 1) / 2);
    if (me == 0) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        CHECK(memory[0] == size && memory[1] == size);
        OK(MPI_Win_unlock(0, win));
    }
    return done();
}
