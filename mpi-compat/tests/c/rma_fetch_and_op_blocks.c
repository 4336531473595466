/* A shared counter hands out blocks of work: each block goes to exactly one rank.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { BLOCKS = 200 };
    int step = 1, taken[BLOCKS] = {0}, all[BLOCKS], next = 0, *memory = begin(1);
    *memory = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    while (1) {
        OK(MPI_Fetch_and_op(&step, &next, MPI_INT, 0, 0, MPI_SUM, win));
        OK(MPI_Win_flush(0, win));
        if (next >= BLOCKS) break;
        taken[next]++;
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Reduce(taken, all, BLOCKS, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
    for (int i = 0; me == 0 && i < BLOCKS; i++) CHECK(all[i] == 1);
    return done();
}
