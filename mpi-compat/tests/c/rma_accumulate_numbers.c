/* Floating-point, complex, logical and long double elements, by all ranks on all targets.
   ranks 1 2 3 */
#include "rma.h"
#include <complex.h>
#include <stdbool.h>

#define EACH(type, mpi, op, first, mine, wanted) \
    do { \
        type *base, x[2], got[2]; \
        MPI_Win win; \
        OK(MPI_Win_allocate(2 * sizeof(type), sizeof(type), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)); \
        for (int i = 0; i < 2; i++) { \
            base[i] = (first); \
            x[i] = (mine); \
        } \
        MPI_Barrier(MPI_COMM_WORLD); \
        OK(MPI_Win_lock_all(0, win)); \
        for (int t = 0; t < size; t++) OK(MPI_Accumulate(x, 2, mpi, t, 0, 2, mpi, op, win)); \
        OK(MPI_Win_unlock_all(win)); \
        MPI_Barrier(MPI_COMM_WORLD); \
        OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win)); \
        OK(MPI_Get_accumulate(x, 2, mpi, got, 2, mpi, me, 0, 2, mpi, MPI_NO_OP, win)); \
        OK(MPI_Win_unlock(me, win)); \
        for (int i = 0; i < 2; i++) { \
            CHECK(got[i] == (wanted)); \
            CHECK(base[i] == (wanted)); \
        } \
        end_window(&win); \
    } while (0)

int main(void) {
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int n = size, sum = n * (n - 1) / 2;
    EACH(float, MPI_FLOAT, MPI_SUM, 1, me + i, 1 + sum + n * i);
    EACH(double, MPI_DOUBLE, MPI_SUM, 1, me + i, 1 + sum + n * i);
    EACH(double, MPI_DOUBLE, MPI_PROD, 1, 2, 1 << n);
    EACH(float, MPI_FLOAT, MPI_MAX, -1, me, n - 1);
    EACH(double, MPI_DOUBLE, MPI_MIN, 5, -me, 1 - n);
    EACH(double, MPI_DOUBLE, MPI_REPLACE, 5, 7, 7);
    EACH(long double, MPI_LONG_DOUBLE, MPI_SUM, 1, me + i, 1 + sum + n * i);
    EACH(long double, MPI_LONG_DOUBLE, MPI_MAX, -1, me, n - 1);
    EACH(long double, MPI_LONG_DOUBLE, MPI_REPLACE, 5, 7, 7);
    EACH(float complex, MPI_C_FLOAT_COMPLEX, MPI_SUM, 1, me + 2 * I, 1 + sum + 2 * n * I);
    EACH(double complex, MPI_C_DOUBLE_COMPLEX, MPI_SUM, I, me + i, sum + n * i + I);
    EACH(double complex, MPI_C_DOUBLE_COMPLEX, MPI_PROD, 1, -1 * 2, (n % 2 ? -1 : 1) * (double)(1 << n));
    EACH(double complex, MPI_C_DOUBLE_COMPLEX, MPI_REPLACE, 3, 4 * I, 4 * I);
    EACH(long double complex, MPI_C_LONG_DOUBLE_COMPLEX, MPI_SUM, 1, me + 2 * I, 1 + sum + 2 * n * I);
    EACH(bool, MPI_C_BOOL, MPI_LOR, false, me == 0, true);
    EACH(bool, MPI_C_BOOL, MPI_LAND, true, me != 0, false);
    EACH(unsigned char, MPI_BYTE, MPI_BOR, 0, 1 << me, (1 << n) - 1);
    EACH(char, MPI_CHAR, MPI_REPLACE, 'a', 'b', 'b');
    return finish();
}
