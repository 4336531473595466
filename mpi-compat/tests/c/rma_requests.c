/* Request-based operations are completed by waits and tests, in any order, with other requests; the epoch completes
   the rest.
   ranks 1 2 3 */
#include "check.h"

enum { N = 40 };

int main(void) {
    int size, *base, values[N], got[N], old[N], flag;
    MPI_Win win;
    MPI_Request requests[2 * N], one;
    MPI_Status status;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (me + 1) % size, left = (me + size - 1) % size;
    OK(MPI_Win_allocate(2 * N * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    for (int i = 0; i < 2 * N; i++) base[i] = 10 * i;
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < N; i++) {
        values[i] = 1000 * me + i;
        got[i] = -1;
        OK(MPI_Rput(&values[i], 1, MPI_INT, right, i, 1, MPI_INT, win, &requests[2 * i]));
        OK(MPI_Rget(&got[i], 1, MPI_INT, right, N + i, 1, MPI_INT, win, &requests[2 * i + 1]));
    }
    OK(MPI_Waitall(2 * N, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < N; i++) CHECK(requests[2 * i] == MPI_REQUEST_NULL && got[i] == 10 * (N + i));
    OK(MPI_Win_flush_all(win));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_sync(win));
    for (int i = 0; i < N; i++) CHECK(base[i] == 1000 * left + i);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < N; i++) {
        values[i] = 1;
        OK(MPI_Raccumulate(&values[i], 1, MPI_INT, right, i, 1, MPI_INT, MPI_SUM, win, &one));
        for (flag = 0; !flag;) OK(MPI_Test(&one, &flag, &status));
        OK(MPI_Rget_accumulate(&values[i], 1, MPI_INT, &old[i], 1, MPI_INT, right, i, 1, MPI_INT, MPI_SUM, win, &one));
        OK(MPI_Wait(&one, &status));
        CHECK(old[i] == 1000 * me + i + 1);
        OK(MPI_Rget_accumulate(NULL, 0, MPI_INT, &old[i], 1, MPI_INT, right, i, 1, MPI_INT, MPI_NO_OP, win, &one));
        OK(MPI_Wait(&one, MPI_STATUS_IGNORE));
        CHECK(old[i] == 1000 * me + i + 2);
    }
    OK(MPI_Rput(values, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win, &one));
    OK(MPI_Wait(&one, MPI_STATUS_IGNORE));
    /* Freed before it is complete: the epoch completes it. */
    values[0] = 77;
    OK(MPI_Rput(values, 1, MPI_INT, right, 0, 1, MPI_INT, win, &one));
    OK(MPI_Request_free(&one));
    OK(MPI_Win_unlock_all(win));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(base[0] == 77);
    OK(MPI_Win_free(&win));
    return finish();
}
