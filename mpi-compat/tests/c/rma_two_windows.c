/* Epochs of different kinds on two windows at the same time.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, *memory = begin(1), *second, got = -1;
    MPI_Win other;
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &second, &other));
    *second = 500 + me;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    FENCE();
    OK(MPI_Win_lock(MPI_LOCK_SHARED, left(), 0, other));
    value = 400 + me;
    PUT(&value, 1, right(), 0);
    OK(MPI_Get(&got, 1, MPI_INT, left(), 0, 1, MPI_INT, other));
    OK(MPI_Win_unlock(left(), other));
    CHECK(got == 500 + left());
    FENCE();
    CHECK(*memory == 400 + left());
    OK(MPI_Win_free(&other));
    return done();
}
