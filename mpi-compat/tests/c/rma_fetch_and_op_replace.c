/* Exchanges of one word by all ranks: no value is lost or duplicated.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int mine, old, sum, total = 0, *memory = begin(1);
    *memory = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < 30; i++) {
        mine = 1 + me * 30 + i;
        OK(MPI_Fetch_and_op(&mine, &old, MPI_INT, 0, 0, MPI_REPLACE, win));
        OK(MPI_Win_flush(0, win));
        total += old;
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Reduce(&total, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
    if (me == 0) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        CHECK(sum + *memory == 30 * size * (30 * size + 1) / 2);
        OK(MPI_Win_unlock(0, win));
    }
    return done();
}
