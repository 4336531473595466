/* A loop that updates, puts its border to a neighbour, and fences (example of section 12.5.1).
   ranks 1 2 3 4 */
#include "rma_steps.h"

int main(void) {
    int own, *from_left = begin(2);
    own = me + 1;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    for (int round = 0; round < ROUNDS; round++) {
        /* Two places in turn, so that one is read while the other is written. */
        PUT(&own, 1, right(), round % 2);
        OK(MPI_Win_fence(0, win));
        own = step(own, from_left[round % 2]);
    }
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    CHECK(own == expected());
    return done();
}
