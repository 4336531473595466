/* Negative and greatest values: comparisons respect the signedness of the type. */
#include <limits.h>
#include "check.h"

int main(void) {
    int a = -3, b = 2;
    unsigned u = 0x80000000u, v = 1;
    signed char s = -100, t = 100;
    start();
    OK(MPI_Reduce_local(&a, &b, 1, MPI_INT, MPI_MIN));
    CHECK(b == -3);
    OK(MPI_Reduce_local(&u, &v, 1, MPI_UNSIGNED, MPI_MAX));
    CHECK(v == 0x80000000u);
    OK(MPI_Reduce_local(&s, &t, 1, MPI_SIGNED_CHAR, MPI_MIN));
    CHECK(t == -100);
    long long x = LLONG_MIN, y = LLONG_MAX;
    OK(MPI_Reduce_local(&x, &y, 1, MPI_LONG_LONG, MPI_MAX));
    CHECK(y == LLONG_MAX);
    return finish();
}
