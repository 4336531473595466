/* Accumulates, fetch-and-op and compare-and-swap by address.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    long memory[2] = {0, 0}, one = 1, former, expected, got;
    MPI_Aint at, zero;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    if (me == 0) OK(MPI_Win_attach(win, memory, sizeof memory));
    OK(MPI_Get_address(memory, &at));
    zero = at;
    OK(MPI_Bcast(&zero, 1, MPI_AINT, 0, MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < 20; i++) {
        OK(MPI_Fetch_and_op(&one, &former, MPI_LONG, 0, zero, MPI_SUM, win));
        OK(MPI_Win_flush(0, win));
        CHECK(former >= i && former < 20 * size);
        got = -1;
        do {
            expected = got;
            long next = expected + 1;
            OK(MPI_Compare_and_swap(&next, &expected, &got, MPI_LONG, 0, MPI_Aint_add(zero, sizeof(long)), win));
            OK(MPI_Win_flush(0, win));
        } while (got != expected);
    }
    OK(MPI_Win_unlock_all(win));
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        CHECK(memory[0] == 20 * size && memory[1] == 20 * size);
        OK(MPI_Win_unlock(0, win));
        OK(MPI_Win_detach(win, memory));
    }
    return done();
}
