/* MPI_Rget: the value is available after the wait, without a flush.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int got[3] = {0}, *memory = begin(3);
    MPI_Request request;
    for (int i = 0; i < 3; i++) memory[i] = 10 * me + i;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win));
    OK(MPI_Rget(got, 3, MPI_INT, right(), 0, 3, MPI_INT, win, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < 3; i++) CHECK(got[i] == 10 * right() + i);
    OK(MPI_Win_unlock(right(), win));
    return done();
}
