/* One origin, and all others are targets.
   ranks 2 3 4 */
#include "rma.h"

int main(void) {
    int others[3] = {1, 2, 3}, root = 0, values[3], *memory = begin(1);
    MPI_Group group = me == 0 ? group_of(size - 1, others) : group_of(1, &root);
    for (int round = 0; round < 10; round++) {
        if (me == 0) {
            OK(MPI_Win_start(group, 0, win));
            for (int rank = 1; rank < size; rank++) {
                values[rank - 1] = rank;
                ADD(&values[rank - 1], 1, rank, 0);
            }
            OK(MPI_Win_complete(win));
        } else {
            *memory = 100 * round;
            OK(MPI_Win_post(group, 0, win));
            OK(MPI_Win_wait(win));
            CHECK(*memory == 100 * round + me);
        }
    }
    OK(MPI_Group_free(&group));
    return done();
}
