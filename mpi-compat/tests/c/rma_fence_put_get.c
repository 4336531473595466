/* Between two fences every rank puts to all and gets from all; displacement units are the target's.
   ranks 1 2 3 4 5 */
#include "check.h"

int main(void) {
    int size, *base;
    MPI_Win win;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int unit = me % 2 ? 4 : 1;
    OK(MPI_Win_allocate((MPI_Aint)size * 2 * 4, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    for (int round = 0; round < 20; round++) {
        int *values = malloc((size_t)size * sizeof(int)), *got = malloc((size_t)size * sizeof(int));
        for (int i = 0; i < size; i++) {
            base[size + i] = 1000 * me + 10 * i + round;
            got[i] = -1;
        }
        OK(MPI_Win_fence(0, win));
        for (int t = 0; t < size; t++) {
            int scale = t % 2 ? 1 : 4;
            values[t] = 100 * me + t + round;
            OK(MPI_Put(&values[t], 1, MPI_INT, t, me * scale, 1, MPI_INT, win));
            OK(MPI_Get(&got[t], 1, MPI_INT, t, (size + me) * scale, 1, MPI_INT, win));
        }
        OK(MPI_Win_fence(0, win));
        for (int i = 0; i < size; i++) {
            CHECK(base[i] == 100 * i + me + round);
            CHECK(got[i] == 1000 * i + 10 * me + round);
        }
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        free(values);
        free(got);
    }
    OK(MPI_Win_free(&win));
    return finish();
}
