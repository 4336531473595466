/* long double keeps all its digits, infinities and NaN. */
#include <float.h>
#include <math.h>
#include "check.h"

int main(void) {
    long double a = 1, b = LDBL_EPSILON;
    start();
    OK(MPI_Reduce_local(&a, &b, 1, MPI_LONG_DOUBLE, MPI_SUM));
    CHECK(b == 1 + LDBL_EPSILON && b != 1);
    b = LDBL_MAX;
    a = -LDBL_MAX;
    OK(MPI_Reduce_local(&a, &b, 1, MPI_LONG_DOUBLE, MPI_MIN));
    CHECK(b == -LDBL_MAX);
    a = INFINITY, b = 5;
    OK(MPI_Reduce_local(&a, &b, 1, MPI_LONG_DOUBLE, MPI_MAX));
    CHECK(isinf(b) && b > 0);
    a = -INFINITY, b = -INFINITY;
    OK(MPI_Reduce_local(&a, &b, 1, MPI_LONG_DOUBLE, MPI_MIN));
    CHECK(isinf(b) && b < 0);
    return finish();
}
