/* Pairs of ranks synchronize, without the others.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, other, *memory = begin(1);
    MPI_Group group;
    other = me ^ 1;
    if (other < size) {
        group = group_of(1, &other);
        for (int round = 0; round < 20; round++) {
            OK(MPI_Win_post(group, 0, win));
            OK(MPI_Win_start(group, 0, win));
            value = 10 * round + me;
            PUT(&value, 1, other, 0);
            OK(MPI_Win_complete(win));
            OK(MPI_Win_wait(win));
            CHECK(*memory == 10 * round + other);
        }
        OK(MPI_Group_free(&group));
    }
    return done();
}
