/* Requests on a window are tested until all are complete.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { N = 64 };
    int values[N], *memory = begin(N), flag = 0;
    MPI_Request requests[N];
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < N; i++) {
        values[i] = 100 * me + i;
        OK(MPI_Rput(&values[i], 1, MPI_INT, right(), i, 1, MPI_INT, win, &requests[i]));
    }
    while (!flag) OK(MPI_Testall(N, requests, &flag, MPI_STATUSES_IGNORE));
    for (int i = 0; i < N; i++) CHECK(requests[i] == MPI_REQUEST_NULL);
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win));
    for (int i = 0; i < N; i++) CHECK(memory[i] == 100 * left() + i);
    OK(MPI_Win_unlock(me, win));
    return done();
}
