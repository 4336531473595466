/* Other ranks get the owner's stores after a fence, and the owner loads their puts.
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
