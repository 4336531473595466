/* Shared locks: all ranks read at the same time the values that one rank has written under an exclusive lock.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int values[30], got[30];
    begin(30);
    for (int round = 0; round < 10; round++) {
        if (me == round % size) {
            for (int i = 0; i < 30; i++) values[i] = 100 * round + i;
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
            PUT(values, 30, 0, 0);
            OK(MPI_Win_unlock(0, win));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
        GET(got, 30, 0, 0);
        OK(MPI_Win_unlock(0, win));
        for (int i = 0; i < 30; i++) CHECK(got[i] == 100 * round + i);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    return done();
}
