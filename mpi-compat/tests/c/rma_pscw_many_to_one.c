/* One target, and all others are origins, each with its own address.
   ranks 2 3 4 */
#include "rma.h"

int main(void) {
    int others[3] = {1, 2, 3}, root = 0, value, *memory = begin(4);
    MPI_Group group = me == 0 ? group_of(size - 1, others) : group_of(1, &root);
    for (int round = 0; round < 10; round++) {
        if (me == 0) {
            OK(MPI_Win_post(group, 0, win));
            OK(MPI_Win_wait(win));
            for (int rank = 1; rank < size; rank++) CHECK(memory[rank] == 10 * round + rank);
        } else {
            value = 10 * round + me;
            OK(MPI_Win_start(group, 0, win));
            PUT(&value, 1, 0, me);
            OK(MPI_Win_complete(win));
        }
    }
    OK(MPI_Group_free(&group));
    return done();
}
