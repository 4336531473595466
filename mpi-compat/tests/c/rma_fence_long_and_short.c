/* A long put to one rank and a short one to another in the same epoch.
   ranks 1 3 4 */
#include "rma.h"

int main(void) {
    enum { N = 100000 };
    int *values = malloc(N * sizeof(int)), *memory = begin(N + 1);
    for (int i = 0; i < N; i++) values[i] = me * N + i;
    FENCE();
    PUT(values, N, right(), 0);
    PUT(&values[5], 1, left(), N);
    FENCE();
    for (int i = 0; i < N; i++) CHECK(memory[i] == left() * N + i);
    CHECK(memory[N] == right() * N + 5);
    free(values);
    return done();
}
