/* All ranks put to all, and in the next epoch get from all.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int values[4], got[4], *memory = begin(4);
    for (int round = 0; round < 10; round++) {
        FENCE();
        for (int rank = 0; rank < size; rank++) {
            values[rank] = 1000 * round + 10 * me + rank;
            PUT(&values[rank], 1, rank, me);
        }
        FENCE();
        for (int rank = 0; rank < size; rank++) {
            CHECK(memory[rank] == 1000 * round + 10 * rank + me);
            GET(&got[rank], 1, rank, rank);
        }
        FENCE();
        for (int rank = 0; rank < size; rank++) CHECK(got[rank] == 1000 * round + 11 * rank);
    }
    return done();
}
