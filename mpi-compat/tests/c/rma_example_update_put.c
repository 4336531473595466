/* A loop that updates, puts its border to a neighbour, and fences (example of section 12.5.1).
   ranks 1 2 3 4 */
#include "rma.h"

enum { ROUNDS = 12 };

/* One step of a computation, and the result of all steps without communication. */
static int step(int own, int from_left) { return 2 * own % 1000 + from_left; }

static void expected(int total, int *values) {
    int next[8];
    for (int i = 0; i < total; i++) values[i] = i + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < total; i++) next[i] = step(values[i], values[(i + total - 1) % total]);
        memcpy(values, next, total * sizeof(int));
    }
}

int main(void) {
    int own, values[8], *from_left = begin(2);
    own = me + 1;
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    for (int round = 0; round < ROUNDS; round++) {
        /* Two places in turn, so that one is read while the other is written. */
        PUT(&own, 1, right(), round % 2);
        OK(MPI_Win_fence(0, win));
        own = step(own, from_left[round % 2]);
    }
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    expected(size, values);
    CHECK(own == values[me]);
    return done();
}
