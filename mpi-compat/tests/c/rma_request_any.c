/* Gets from all ranks, completed by MPI_Waitany one after the other.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int got[4], *memory = begin(1), left_over = 0, at;
    MPI_Request requests[4];
    *memory = 70 + me;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    for (int rank = 0; rank < size; rank++)
        OK(MPI_Rget(&got[rank], 1, MPI_INT, rank, 0, 1, MPI_INT, win, &requests[rank]));
    for (int i = 0; i < size; i++) {
        OK(MPI_Waitany(size, requests, &at, MPI_STATUS_IGNORE));
        CHECK(at >= 0 && at < size && got[at] == 70 + at);
        left_over += at;
    }
    CHECK(left_over == size * (size - 1) / 2);
    OK(MPI_Waitany(size, requests, &at, MPI_STATUS_IGNORE));
    CHECK(at == MPI_UNDEFINED);
    OK(MPI_Win_unlock_all(win));
    return done();
}
