/* A floating-point sum that is fetched grows by what this rank has added.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    double *memory, half = 0.5, old, last = -1;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    *memory = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < 20; i++) {
        OK(MPI_Fetch_and_op(&half, &old, MPI_DOUBLE, size - 1, 0, MPI_SUM, win));
        OK(MPI_Win_flush(size - 1, win));
        CHECK(old >= last + half);
        last = old;
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, win));
    OK(MPI_Get(&old, 1, MPI_DOUBLE, size - 1, 0, 1, MPI_DOUBLE, win));
    OK(MPI_Win_unlock(size - 1, win));
    CHECK(old == 10.0 * size);
    return done();
}
