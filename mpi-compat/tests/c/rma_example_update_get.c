/* The same loop by gets, with the update of what nobody reads between the fences.
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
    int own, from_left = 0, values[8], *memory = begin(1);
    own = me + 1;
    for (int round = 0; round < ROUNDS; round++) {
        *memory = own;
        OK(MPI_Win_fence(MPI_MODE_NOPUT | MPI_MODE_NOPRECEDE, win));
        GET(&from_left, 1, left(), 0);
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        own = step(own, from_left);
    }
    expected(size, values);
    CHECK(own == values[me]);
    return done();
}
