/* Fence asserts that hold do not change the results.
   ranks 1 2 4 */
#include "check.h"

int main(void) {
    int size, cells[2], one;
    MPI_Win win;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (me + 1) % size, left = (me + size - 1) % size;
    OK(MPI_Win_create(cells, sizeof cells, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int round = 0; round < 10; round++) {
        cells[0] = -1;
        cells[1] = 7 * me + round;
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
        one = me + round;
        OK(MPI_Put(&one, 1, MPI_INT, right, 0, 1, MPI_INT, win));
        OK(MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT, win));
        CHECK(cells[0] == left + round);
        OK(MPI_Get(&one, 1, MPI_INT, right, 1, 1, MPI_INT, win));
        OK(MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOSUCCEED, win));
        CHECK(one == 7 * right + round);
    }
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, win));
    OK(MPI_Win_free(&win));
    return finish();
}
