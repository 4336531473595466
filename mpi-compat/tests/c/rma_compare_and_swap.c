/* A counter by compare-and-swap loses no increment, for every size of integers.
   ranks 1 2 4 */
#include "check.h"
#include <stdbool.h>

enum { EACH = 20 };

#define COUNTER(type, mpi) \
    do { \
        type *base, seen = 0, next, got; \
        MPI_Win win; \
        OK(MPI_Win_allocate(2 * sizeof(type), sizeof(type), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)); \
        base[0] = base[1] = 0; \
        MPI_Barrier(MPI_COMM_WORLD); \
        OK(MPI_Win_lock_all(0, win)); \
        for (int i = 0; i < EACH; seen = got) { \
            next = (type)(seen + 1); \
            OK(MPI_Compare_and_swap(&next, &seen, &got, mpi, 0, 1, win)); \
            OK(MPI_Win_flush(0, win)); \
            if (got == seen) { \
                i++; \
                got = next; \
            } \
        } \
        OK(MPI_Win_unlock_all(win)); \
        MPI_Barrier(MPI_COMM_WORLD); \
        if (me == 0) CHECK(base[0] == 0 && base[1] == (type)(EACH * size)); \
        OK(MPI_Win_free(&win)); \
    } while (0)

int main(void) {
    int size;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    COUNTER(signed char, MPI_SIGNED_CHAR);
    COUNTER(uint8_t, MPI_BYTE);
    COUNTER(short, MPI_SHORT);
    COUNTER(int, MPI_INT);
    COUNTER(unsigned, MPI_UNSIGNED);
    COUNTER(long, MPI_LONG);
    COUNTER(uint64_t, MPI_UINT64_T);
    COUNTER(MPI_Aint, MPI_AINT);
    return finish();
}
