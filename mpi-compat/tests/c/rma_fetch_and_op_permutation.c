/* Tickets by fetch-and-op: the results of all ranks form a permutation, for every type; each replaced value is seen
   once.
   ranks 1 2 4 */
#include "check.h"
#include <complex.h>

enum { EACH = 50 };
static int me, size;

static void all_once(int *mine, int first) {
    int *all = malloc((size_t)size * EACH * sizeof(int)), *seen = calloc((size_t)size * EACH, sizeof(int));
    MPI_Gather(mine, EACH, MPI_INT, all, EACH, MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; me == 0 && i < size * EACH; i++) {
        int v = all[i] - first;
        if (v < 0 || v >= size * EACH || seen[v]++) CHECK(!"a value twice, or none");
    }
    free(all);
    free(seen);
}

#define TICKETS(type, mpi) \
    do { \
        type *base, one = 1, got; \
        int mine[EACH]; \
        MPI_Win win; \
        OK(MPI_Win_allocate(sizeof(type), sizeof(type), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)); \
        *base = 0; \
        MPI_Barrier(MPI_COMM_WORLD); \
        OK(MPI_Win_lock_all(0, win)); \
        for (int i = 0; i < EACH; i++) { \
            OK(MPI_Fetch_and_op(&one, &got, mpi, size - 1, 0, MPI_SUM, win)); \
            OK(MPI_Win_flush(size - 1, win)); \
            mine[i] = (int)got; \
        } \
        OK(MPI_Win_unlock_all(win)); \
        all_once(mine, 0); \
        /* Each rank stores its own numbers and takes the old ones: with the last, each is seen once. */ \
        MPI_Barrier(MPI_COMM_WORLD); \
        OK(MPI_Win_lock_all(0, win)); \
        for (int i = 0; i < EACH; i++) { \
            type next = (type)(me * EACH + i + 1); \
            OK(MPI_Fetch_and_op(&next, &got, mpi, 0, 0, MPI_REPLACE, win)); \
            OK(MPI_Win_flush(0, win)); \
            mine[i] = (int)got; \
        } \
        OK(MPI_Win_unlock_all(win)); \
        MPI_Barrier(MPI_COMM_WORLD); \
        long total = 0, sum; \
        for (int i = 0; i < EACH; i++) total += mine[i]; \
        MPI_Reduce(&total, &sum, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD); \
        long n = (long)size * EACH, begin = size == 1 ? n : 0; \
        if (me == 0) CHECK(sum + (long)*base == n * (n + 1) / 2 + begin); \
        OK(MPI_Win_free(&win)); \
    } while (0)

int main(void) {
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    TICKETS(int, MPI_INT);
    TICKETS(short, MPI_SHORT);
    TICKETS(long, MPI_LONG);
    TICKETS(double, MPI_DOUBLE);
    TICKETS(float, MPI_FLOAT);
    TICKETS(long double, MPI_LONG_DOUBLE);
    TICKETS(double complex, MPI_C_DOUBLE_COMPLEX);
    return finish();
}
