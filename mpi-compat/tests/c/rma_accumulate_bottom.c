/* Operands and results at absolute addresses, relative to MPI_BOTTOM: numbers, complex numbers, and pairs.
   ranks 1 2 3 */
#include "rma.h"
#include <complex.h>

/* A type of one element at an address, to be used with MPI_BOTTOM. */
static MPI_Datatype at(const void *address, MPI_Datatype of) {
    const int one = 1;
    MPI_Aint place;
    MPI_Datatype type;
    OK(MPI_Get_address(address, &place));
    OK(MPI_Type_create_hindexed(1, &one, &place, of, &type));
    OK(MPI_Type_commit(&type));
    return type;
}

#define ONE(type, mpi, operand, before, sum, operation) \
    do { \
        type *base, mine = operand, old; \
        MPI_Win win; \
        OK(MPI_Win_allocate(2 * sizeof mine, sizeof mine, MPI_INFO_NULL, MPI_COMM_SELF, &base, &win)); \
        memset(&old, 0, sizeof old); \
        base[0] = base[1] = before; \
        MPI_Datatype from = at(&mine, mpi), into = at(&old, mpi); \
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win)); \
        OK(MPI_Accumulate(MPI_BOTTOM, 1, from, 0, 0, 1, mpi, operation, win)); \
        OK(MPI_Get_accumulate(MPI_BOTTOM, 1, from, MPI_BOTTOM, 1, into, 0, 1, 1, mpi, MPI_REPLACE, win)); \
        OK(MPI_Win_unlock(0, win)); \
        CHECK(base[0] == sum && base[1] == mine && old == before); \
        OK(MPI_Type_free(&from)); \
        OK(MPI_Type_free(&into)); \
        overwritten(win, MPI_COMM_SELF); \
        OK(MPI_Win_free(&win)); \
    } while (0)

int main(void) {
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ONE(int, MPI_INT, me + 2, 40, me + 42, MPI_SUM);
    ONE(double, MPI_DOUBLE, me + 0.5, 2.0, 2 * (me + 0.5), MPI_PROD);
    ONE(double complex, MPI_C_DOUBLE_COMPLEX, me + 3.0 * I, 1.0 - 5.0 * I, me + 1.0 - 2.0 * I, MPI_SUM);
    ONE(long double, MPI_LONG_DOUBLE, me + 1.0L, 0.25L, me + 1.25L, MPI_SUM);
    return finish();
}
