/* Stores of the owner before a fence are got by others after it, and the other way round.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int got = -1, *memory = begin(1);
    for (int round = 0; round < 20; round++) {
        *memory = 100 * round + me;
        FENCE();
        GET(&got, 1, right(), 0);
        FENCE();
        CHECK(got == 100 * round + right());
    }
    return done();
}
