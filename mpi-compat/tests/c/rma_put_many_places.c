/* Hundreds of puts to different addresses in one epoch.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { N = 500 };
    int values[N], *memory = begin(N);
    FENCE();
    for (int i = 0; i < N; i++) {
        values[i] = 1000 * me + i;
        PUT(&values[i], 1, right(), N - 1 - i);
    }
    FENCE();
    for (int i = 0; i < N; i++) CHECK(memory[N - 1 - i] == 1000 * left() + i);
    return done();
}
