/* Increments by get and put under an exclusive lock are never lost.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int count, *memory = begin(1);
    *memory = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < 25; i++) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        GET(&count, 1, 0, 0);
        OK(MPI_Win_flush(0, win));
        count++;
        PUT(&count, 1, 0, 0);
        OK(MPI_Win_unlock(0, win));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    GET(&count, 1, 0, 0);
    OK(MPI_Win_unlock(0, win));
    CHECK(count == 25 * size);
    return done();
}
