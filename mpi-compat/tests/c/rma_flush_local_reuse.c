/* After MPI_Win_flush_local the buffer may be reused, and each value arrives unchanged.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, got[40];
    begin(40);
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < 40; i++) {
        value = 100 * me + i;
        PUT(&value, 1, right(), i);
        OK(MPI_Win_flush_local(right(), win));
    }
    value = -7;
    OK(MPI_Win_flush_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    GET(got, 40, me, 0);
    OK(MPI_Win_flush_local_all(win));
    for (int i = 0; i < 40; i++) CHECK(got[i] == 100 * left() + i);
    OK(MPI_Win_unlock_all(win));
    return done();
}
