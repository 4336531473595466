/* A loop that updates its own value, and gets that of its left neighbour between two fences.
   ranks 1 2 3 4 */
#include "rma_steps.h"

int main(void) {
    int own, from_left = 0, *memory = begin(1);
    own = me + 1;
    for (int round = 0; round < ROUNDS; round++) {
        *memory = own;
        OK(MPI_Win_fence(MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE, win));
        GET(&from_left, 1, left(), 0);
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        own = step(own, from_left);
    }
    CHECK(own == expected());
    return done();
}
