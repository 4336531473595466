/* MPI_MODE_NOCHECK on both sides, after a message that says that post was called.
   ranks 2 */
#include "rma.h"

int main(void) {
    int base[4] = {0}, value;
    MPI_Win win;
    MPI_Group world, other;
    start();
    int me = rank_of(MPI_COMM_WORLD), peer = 1 - me;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &peer, &other);
    OK(MPI_Win_create(base, sizeof base, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int round = 1; round < 20; round++) {
        if (me == 0) {
            OK(MPI_Recv(&value, 0, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Win_start(other, MPI_MODE_NOCHECK, win));
            value = round;
            OK(MPI_Put(&value, 1, MPI_INT, 1, 3, 1, MPI_INT, win));
            OK(MPI_Win_complete(win));
        } else {
            OK(MPI_Win_post(other, MPI_MODE_NOCHECK, win));
            OK(MPI_Send(&value, 0, MPI_INT, 0, 0, MPI_COMM_WORLD));
            OK(MPI_Win_wait(win));
            CHECK(base[3] == round);
        }
    }
    end_window(&win);
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&other));
    return finish();
}
