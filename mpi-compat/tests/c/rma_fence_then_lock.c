/* A fence whose epoch has no operations may be followed by other kinds of epochs, at some ranks and not at others.
   ranks 2 3 4 */
#include "rma.h"

int main(void) {
    int size, value, *base;
    MPI_Win win;
    MPI_Group world, first, rest;
    start();
    int me = rank_of(MPI_COMM_WORLD), zero = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &zero, &first);
    MPI_Group_excl(world, 1, &zero, &rest);
    OK(MPI_Win_allocate(8, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    for (int round = 1; round < 20; round++) {
        base[0] = 0;
        OK(MPI_Win_fence(0, win));
        if (me == 0) {
            value = round;
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
            OK(MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win));
            OK(MPI_Win_unlock(1, win));
        }
        OK(MPI_Win_fence(0, win));
        CHECK(base[0] == (me == 1 ? round : 0));
        OK(MPI_Win_fence(0, win));
        if (me == 0) {
            OK(MPI_Win_start(rest, 0, win));
            for (int t = 1; t < size; t++) OK(MPI_Put(&round, 1, MPI_INT, t, 1, 1, MPI_INT, win));
            OK(MPI_Win_complete(win));
        } else {
            OK(MPI_Win_post(first, 0, win));
            OK(MPI_Win_wait(win));
            CHECK(base[1] == round);
        }
        OK(MPI_Win_fence(0, win));
    }
    end_window(&win);
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&first));
    OK(MPI_Group_free(&rest));
    return finish();
}
