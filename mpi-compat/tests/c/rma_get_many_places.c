/* Hundreds of gets in one epoch, from all ranks.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { N = 300 };
    int got[4][N], *memory = begin(N);
    for (int i = 0; i < N; i++) memory[i] = 1000 * me + i;
    FENCE();
    for (int i = 0; i < N; i++)
        for (int rank = 0; rank < size; rank++) GET(&got[rank][i], 1, rank, (7 * i) % N);
    FENCE();
    for (int i = 0; i < N; i++)
        for (int rank = 0; rank < size; rank++) CHECK(got[rank][i] == 1000 * rank + (7 * i) % N);
    return done();
}
