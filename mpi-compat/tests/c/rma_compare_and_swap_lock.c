/* A spin lock by compare-and-swap excludes other ranks: an unprotected counter loses no increment.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int zero = 0, held = 1, got, count, *memory = begin(2);
    memory[0] = memory[1] = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < 15; i++) {
        do {
            OK(MPI_Compare_and_swap(&held, &zero, &got, MPI_INT, 0, 0, win));
            OK(MPI_Win_flush(0, win));
        } while (got != 0);
        GET(&count, 1, 0, 1);
        OK(MPI_Win_flush(0, win));
        count++;
        PUT(&count, 1, 0, 1);
        OK(MPI_Win_flush(0, win));
        OK(MPI_Fetch_and_op(&zero, &got, MPI_INT, 0, 0, MPI_REPLACE, win));
        OK(MPI_Win_flush(0, win));
        CHECK(got == 1);
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    GET(&count, 1, 0, 1);
    OK(MPI_Win_unlock(0, win));
    CHECK(count == 15 * size);
    return done();
}
