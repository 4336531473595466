/* Each communicator has its own sequence of calls, and ranks are those of the communicator.
   ranks 4
   says VERIFY MPI_BARRIER(1): call inconsistent with call to MPI_Bcast by 0 */
#include "check.h"

int main(void) {
    MPI_Comm half;
    int value = 0;
    start();
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    handle(half);
    if (rank % 2) {
        MPI_Barrier(half);
        handled += IS_WRONG;
    } else if (WRONG_AT(2, 1, 0)) {
        MPI_Barrier(half);
    } else {
        MPI_Bcast(&value, 1, MPI_INT, 0, half);
        if (!IS_WRONG && rank == 2) MPI_Send(&value, 1, MPI_INT, 0, 3, half);
        if (!IS_WRONG && rank == 0) MPI_Recv(&value, 1, MPI_INT, 1, 3, half, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&half);
    return finish();
}
