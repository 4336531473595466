/* A permutation of a distributed array by one get for each element.
   ranks 1 2 4 */
#include "rma.h"

/* Element i of the array that all ranks have together, m at each, goes to place map(i). */
static int map(int i, int total) { return (5 * i + 3) % total; }

int main(void) {
    enum { M = 40 };
    int a[M], *b = begin(M), total = size * M;
    for (int i = 0; i < M; i++) b[i] = 1000 + me * M + i;
    FENCE();
    for (int i = 0; i < M; i++) {
        int at = map(me * M + i, total);
        GET(&a[i], 1, at / M, at % M);
    }
    FENCE();
    for (int i = 0; i < M; i++) CHECK(a[i] == 1000 + map(me * M + i, total));
    return done();
}
