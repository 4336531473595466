/* Sums, products, minima and maxima of floating-point and complex types. */
#include <complex.h>
#include "check.h"

#define RUN(type, c_type) \
    do { \
        c_type a[] = {1.5, -2, 0.25}, b[] = {4, -3, 8}; \
        MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN}; \
        printf(#type ":"); \
        for (int o = 0; o < COUNT(ops); o++) { \
            c_type to[3]; \
            memcpy(to, b, sizeof b); \
            OK(MPI_Reduce_local(a, to, 3, type, ops[o])); \
            for (int i = 0; i < 3; i++) printf(" %g", (double)to[i]); \
            printf(","); \
        } \
        printf("\n"); \
    } while (0)

#define RUN_COMPLEX(type, c_type) \
    do { \
        c_type a[] = {1 + 2 * I, -3}, b[] = {4 - I, 2 * I}; \
        MPI_Op ops[] = {MPI_SUM, MPI_PROD}; \
        printf(#type ":"); \
        for (int o = 0; o < COUNT(ops); o++) { \
            c_type to[2]; \
            memcpy(to, b, sizeof b); \
            OK(MPI_Reduce_local(a, to, 2, type, ops[o])); \
            for (int i = 0; i < 2; i++) printf(" %g%+gi", (double)creal(to[i]), (double)cimag(to[i])); \
            printf(","); \
        } \
        printf("\n"); \
    } while (0)

int main(void) {
    start();
    RUN(MPI_FLOAT, float);
    RUN(MPI_DOUBLE, double);
    RUN(MPI_LONG_DOUBLE, long double);
    RUN_COMPLEX(MPI_C_FLOAT_COMPLEX, float complex);
    RUN_COMPLEX(MPI_C_DOUBLE_COMPLEX, double complex);
    RUN_COMPLEX(MPI_C_LONG_DOUBLE_COMPLEX, long double complex);
    return finish();
}
