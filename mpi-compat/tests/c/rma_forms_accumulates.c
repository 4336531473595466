/* The forms with large counts of accumulates and their requests.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int one = 1, old[2] = {-1, -1}, *memory = begin(4);
    MPI_Request requests[2];
    for (int i = 0; i < 4; i++) memory[i] = 100;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Accumulate_c(&one, (MPI_Count)1, MPI_INT, right(), 0, (MPI_Count)1, MPI_INT, MPI_SUM, win));
    OK(MPI_Get_accumulate_c(&one, (MPI_Count)1, MPI_INT, &old[0], (MPI_Count)1, MPI_INT, right(), 1, (MPI_Count)1, MPI_INT, MPI_SUM,
                            win));
    OK(MPI_Raccumulate_c(&one, (MPI_Count)1, MPI_INT, right(), 2, (MPI_Count)1, MPI_INT, MPI_SUM, win, &requests[0]));
    OK(MPI_Rget_accumulate_c(&one, (MPI_Count)1, MPI_INT, &old[1], (MPI_Count)1, MPI_INT, right(), 3, (MPI_Count)1, MPI_INT, MPI_SUM,
                             win, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(old[1] == 100);
    OK(MPI_Win_unlock_all(win));
    CHECK(old[0] == 100);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    for (int i = 0; i < 4; i++) CHECK(memory[i] == 101);
    OK(MPI_Win_unlock(me, win));
    return done();
}
