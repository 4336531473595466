/* Post, start, complete, wait around a ring; test in place of wait; groups in any order, and empty ones.
   ranks 1 2 3 4 */
#include "check.h"

int main(void) {
    int size, *base, values[2], got[2], flag;
    MPI_Win win;
    MPI_Group world, neighbors;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (me + 1) % size, left = (me + size - 1) % size, ranks[2] = {right, left};
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    OK(MPI_Group_incl(world, right == left ? 1 : 2, ranks, &neighbors));
    OK(MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    for (int round = 0; round < 30; round++) {
        base[2] = 10 * me + round;
        OK(MPI_Win_post(neighbors, round % 3 ? 0 : MPI_MODE_NOSTORE, win));
        OK(MPI_Win_start(neighbors, 0, win));
        values[0] = me * 2 + round;
        values[1] = me * 3 + round;
        OK(MPI_Put(&values[0], 1, MPI_INT, right, 0, 1, MPI_INT, win));
        OK(MPI_Put(&values[1], 1, MPI_INT, left, 1, 1, MPI_INT, win));
        OK(MPI_Get(&got[0], 1, MPI_INT, right, 2, 1, MPI_INT, win));
        OK(MPI_Get(&got[1], 1, MPI_INT, left, 2, 1, MPI_INT, win));
        OK(MPI_Win_complete(win));
        CHECK(got[0] == 10 * right + round && got[1] == 10 * left + round);
        if (round % 2) {
            OK(MPI_Win_wait(win));
        } else {
            for (flag = 0; !flag;) OK(MPI_Win_test(win, &flag));
        }
        CHECK(base[0] == left * 2 + round && base[1] == right * 3 + round);
    }
    OK(MPI_Win_post(MPI_GROUP_EMPTY, 0, win));
    OK(MPI_Win_start(MPI_GROUP_EMPTY, 0, win));
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    OK(MPI_Win_free(&win));
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&neighbors));
    return finish();
}
