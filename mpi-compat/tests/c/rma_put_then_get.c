/* Values that are put in one epoch are got in the next, through several ranks.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int token = 0;
    begin(1);
    FENCE();
    for (int round = 0; round < 3 * size; round++) {
        if (round % size == me) {
            token = 100 + round;
            PUT(&token, 1, right(), 0);
        }
        FENCE();
        int got = -1;
        GET(&got, 1, (round + 1) % size, 0);
        FENCE();
        CHECK(got == 100 + round);
    }
    return done();
}
