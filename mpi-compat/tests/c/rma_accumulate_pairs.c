/* MINLOC and MAXLOC on all pair types: the least and greatest value with the least rank that has it.
   ranks 1 2 4 */
#include "rma.h"

#define PAIR(type, mpi) \
    do { \
        struct { \
            type value; \
            int rank; \
        } *base, mine[2], old[2]; \
        MPI_Win win; \
        OK(MPI_Win_allocate(2 * sizeof mine[0], sizeof mine[0], MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win)); \
        for (int i = 0; i < 2; i++) { \
            base[i].value = i ? 100 : -100; \
            base[i].rank = 99; \
        } \
        OK(MPI_Win_fence(0, win)); \
        for (int t = 0; t < size; t++) { \
            mine[0].value = mine[1].value = (type)(me / 2); \
            mine[0].rank = mine[1].rank = me; \
            OK(MPI_Accumulate(&mine[0], 1, mpi, t, 0, 1, mpi, MPI_MAXLOC, win)); \
            OK(MPI_Get_accumulate(&mine[1], 1, mpi, &old[1], 1, mpi, t, 1, 1, mpi, MPI_MINLOC, win)); \
        } \
        OK(MPI_Win_fence(0, win)); \
        int best = (size - 1) / 2; \
        CHECK(base[0].value == (type)best && base[0].rank == best * 2); \
        CHECK(base[1].value == 0 && base[1].rank == 0); \
        CHECK(old[1].value == 100 || (old[1].value >= 0 && old[1].value <= best)); \
        end_window(&win); \
    } while (0)

int main(void) {
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    PAIR(float, MPI_FLOAT_INT);
    PAIR(double, MPI_DOUBLE_INT);
    PAIR(long, MPI_LONG_INT);
    PAIR(int, MPI_2INT);
    PAIR(short, MPI_SHORT_INT);
    PAIR(long double, MPI_LONG_DOUBLE_INT);
    return finish();
}
