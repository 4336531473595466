/* Requests of windows and of messages are waited for in one array.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int got = -1, came = -1, sent, *memory = begin(1);
    MPI_Request requests[3];
    *memory = 80 + me;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win));
    sent = me;
    OK(MPI_Irecv(&came, 1, MPI_INT, left(), 3, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Rget(&got, 1, MPI_INT, right(), 0, 1, MPI_INT, win, &requests[1]));
    OK(MPI_Isend(&sent, 1, MPI_INT, right(), 3, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    CHECK(got == 80 + right() && came == left());
    OK(MPI_Win_unlock(right(), win));
    return done();
}
