/* All ranks add to all in one lock_all epoch, in any order.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int mine, got;
    *begin(1) = 0;
    mine = me + 1;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < 10; i++)
        for (int rank = 0; rank < size; rank++) ADD(&mine, 1, rank, 0);
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    GET(&got, 1, me, 0);
    OK(MPI_Win_unlock(me, win));
    CHECK(got == 10 * size * (size + 1) / 2);
    return done();
}
