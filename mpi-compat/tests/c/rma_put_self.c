/* A rank puts to its own memory, and gets from it.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, got = -1, *memory = begin(2);
    value = 40 + me;
    FENCE();
    PUT(&value, 1, me, 1);
    FENCE();
    CHECK(memory[0] == -1 && memory[1] == 40 + me);
    GET(&got, 1, me, 1);
    FENCE();
    CHECK(got == 40 + me);
    return done();
}
