/* Every operator of integers on every integer type, by all ranks on one target: the result does not depend on their order.
   ranks 1 2 3 */
#include "check.h"

enum { OPS = 10 };
static int me, size;

/* Values of a rank: small, so that products fit 8 bits. */
static long long at(int rank, int i) { return (rank * 3 + i) % 3 + 1; }

static long long expected(MPI_Op op, long long start, int i) {
    long long v = start;
    for (int r = 0; r < size; r++) {
        long long x = at(r, i);
        if (op == MPI_SUM) v += x;
        if (op == MPI_PROD) v *= x;
        if (op == MPI_MIN) v = v < x ? v : x;
        if (op == MPI_MAX) v = v > x ? v : x;
        if (op == MPI_BAND) v &= x;
        if (op == MPI_BOR) v |= x;
        if (op == MPI_BXOR) v ^= x;
        if (op == MPI_LAND) v = v && x;
        if (op == MPI_LOR) v = v || x;
        if (op == MPI_LXOR) v = !v != !x;
    }
    return v;
}

#define TRY(type, mpi) \
    do { \
        type *base, mine[3], old[3 * OPS]; \
        MPI_Win win; \
        OK(MPI_Win_allocate(sizeof old, sizeof(type), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)); \
        for (int i = 0; i < 3 * OPS; i++) base[i] = 2; \
        for (int i = 0; i < 3; i++) mine[i] = (type)at(me, i); \
        OK(MPI_Win_fence(0, win)); \
        for (int o = 0; o < OPS; o++) OK(MPI_Accumulate(mine, 3, mpi, size - 1, 3 * o, 3, mpi, ops[o], win)); \
        OK(MPI_Win_fence(0, win)); \
        OK(MPI_Get_accumulate(NULL, 0, MPI_INT, old, 3 * OPS, mpi, size - 1, 0, 3 * OPS, mpi, MPI_NO_OP, win)); \
        OK(MPI_Win_fence(0, win)); \
        for (int i = 0; i < 3 * OPS; i++) { \
            CHECK(old[i] == (type)expected(ops[i / 3], 2, i % 3)); \
            CHECK(base[i] == (me == size - 1 ? (type)expected(ops[i / 3], 2, i % 3) : 2)); \
        } \
        OK(MPI_Win_free(&win)); \
    } while (0)

int main(void) {
    MPI_Op ops[OPS] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    TRY(signed char, MPI_SIGNED_CHAR);
    TRY(unsigned char, MPI_UNSIGNED_CHAR);
    TRY(short, MPI_SHORT);
    TRY(unsigned short, MPI_UNSIGNED_SHORT);
    TRY(int, MPI_INT);
    TRY(unsigned, MPI_UNSIGNED);
    TRY(long, MPI_LONG);
    TRY(unsigned long, MPI_UNSIGNED_LONG);
    TRY(long long, MPI_LONG_LONG);
    TRY(int8_t, MPI_INT8_T);
    TRY(uint16_t, MPI_UINT16_T);
    TRY(int32_t, MPI_INT32_T);
    TRY(uint64_t, MPI_UINT64_T);
    TRY(MPI_Aint, MPI_AINT);
    TRY(MPI_Offset, MPI_OFFSET);
    TRY(MPI_Count, MPI_COUNT);
    return finish();
}
