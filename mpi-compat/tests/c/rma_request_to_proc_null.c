/* Request-based operations on MPI_PROC_NULL complete at once and change nothing.
   ranks 1 2 */
#include "rma.h"

int main(void) {
    int value = 3, flag = 0;
    MPI_Request requests[4];
    begin(1);
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Rput(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win, &requests[0]));
    OK(MPI_Rget(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win, &requests[1]));
    OK(MPI_Raccumulate(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, win, &requests[2]));
    OK(MPI_Rget_accumulate(&value, 1, MPI_INT, &flag, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, win, &requests[3]));
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    CHECK(value == 3 && flag == 0);
    OK(MPI_Win_unlock_all(win));
    return done();
}
