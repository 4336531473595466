/* MPI_Rput: the buffer may be reused after the wait, and the value is at the target after a flush.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, got = -1, *memory = begin(1);
    MPI_Request request;
    (void)memory;
    OK(MPI_Win_lock_all(0, win));
    value = 60 + me;
    OK(MPI_Rput(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(request == MPI_REQUEST_NULL);
    value = -5;
    OK(MPI_Win_flush(right(), win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    GET(&got, 1, me, 0);
    OK(MPI_Win_flush(me, win));
    CHECK(got == 60 + left());
    OK(MPI_Win_unlock_all(win));
    return done();
}
