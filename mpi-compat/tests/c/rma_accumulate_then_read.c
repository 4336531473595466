/* Accumulates and atomic reads of one origin at one address: a read sees all earlier accumulates.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int one = 1, got[10], *memory = begin(1);
    *memory = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, win));
    for (int i = 0; i < 10; i++) {
        ADD(&one, 1, right(), 0);
        OK(MPI_Get_accumulate(&one, 1, MPI_INT, &got[i], 1, MPI_INT, right(), 0, 1, MPI_INT, MPI_NO_OP, win));
    }
    OK(MPI_Win_unlock(right(), win));
    for (int i = 0; i < 10; i++) CHECK(got[i] == i + 1);
    return done();
}
