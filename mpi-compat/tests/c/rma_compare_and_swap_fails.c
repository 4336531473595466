/* A comparison that fails changes nothing and returns the current value.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    long long *memory, next = 5, wrong = 4, got = -1;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    *memory = 1LL << 40 | me;
    FENCE();
    OK(MPI_Compare_and_swap(&next, &wrong, &got, MPI_LONG_LONG, right(), 0, win));
    FENCE();
    CHECK(got == (1LL << 40 | right()) && *memory == (1LL << 40 | me));
    return done();
}
