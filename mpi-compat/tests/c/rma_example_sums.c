/* Elements of a distributed array are added at the indices of a map, several at one address (example of section
   12.3.4).
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { M = 30 };
    int a[M], *b = begin(M), total = size * M;
    for (int i = 0; i < M; i++) b[i] = 0;
    for (int i = 0; i < M; i++) a[i] = me * M + i + 1;
    FENCE();
    for (int i = 0; i < M; i++) {
        int at = (me * M + i) * (me * M + i) % total;
        ADD(&a[i], 1, at / M, at % M);
    }
    FENCE();
    for (int i = 0; i < M; i++) {
        int expected = 0;
        for (int j = 0; j < total; j++)
            if (j * j % total == me * M + i) expected += j + 1;
        CHECK(b[i] == expected);
    }
    return done();
}
