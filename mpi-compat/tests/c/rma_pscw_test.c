/* MPI_Win_test ends the exposure epoch once all origins have completed, and returns true once.
   ranks 2 3 */
#include "rma.h"

int main(void) {
    int root = 0, other = 1, value = 55, flag = 0, *memory = begin(1);
    if (me > 1) return done();
    MPI_Group group = group_of(1, me == 0 ? &other : &root);
    if (me == 0) {
        OK(MPI_Win_post(group, 0, win));
        OK(MPI_Win_test(win, &flag));
        CHECK(flag == 0);
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        while (!flag) OK(MPI_Win_test(win, &flag));
        CHECK(*memory == 55);
        /* The window is free for the next epoch. */
        OK(MPI_Win_post(MPI_GROUP_EMPTY, 0, win));
        OK(MPI_Win_wait(win));
    } else {
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Win_start(group, 0, win));
        PUT(&value, 1, 0, 0);
        OK(MPI_Win_complete(win));
    }
    OK(MPI_Group_free(&group));
    return done();
}
