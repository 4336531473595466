/* The forms with large counts of put, get and their requests.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int values[6], got[6], *memory = begin(12);
    MPI_Request requests[2];
    for (int i = 0; i < 6; i++) values[i] = 10 * me + i;
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Put_c(values, (MPI_Count)6, MPI_INT, right(), 0, (MPI_Count)6, MPI_INT, win));
    OK(MPI_Rput_c(values, (MPI_Count)6, MPI_INT, right(), 6, (MPI_Count)6, MPI_INT, win, &requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Win_flush_all(win));
    OK(MPI_Get_c(got, (MPI_Count)3, MPI_INT, right(), 0, (MPI_Count)3, MPI_INT, win));
    OK(MPI_Rget_c(got + 3, (MPI_Count)3, MPI_INT, right(), 9, (MPI_Count)3, MPI_INT, win, &requests[1]));
    OK(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    OK(MPI_Win_unlock_all(win));
    for (int i = 0; i < 6; i++) CHECK(got[i] == 10 * me + i);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    for (int i = 0; i < 12; i++) CHECK(memory[i] == 10 * left() + i % 6);
    OK(MPI_Win_unlock(me, win));
    return done();
}
