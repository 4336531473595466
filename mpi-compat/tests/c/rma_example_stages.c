/* Blocks are fetched by requests, one ahead of the block that is processed (example of section 12.3.5).
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { BLOCKS = 10, LEN = 200 };
    static int block[2][LEN];
    long sum = 0, expected = 0;
    int *memory = begin(BLOCKS * LEN);
    MPI_Request requests[2];
    for (int i = 0; i < BLOCKS * LEN; i++) memory[i] = me + i;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Rget(block[0], LEN, MPI_INT, right(), 0, LEN, MPI_INT, win, &requests[0]));
    for (int i = 0; i < BLOCKS; i++) {
        if (i + 1 < BLOCKS)
            OK(MPI_Rget(block[(i + 1) % 2], LEN, MPI_INT, right(), (i + 1) * LEN, LEN, MPI_INT, win, &requests[(i + 1) % 2]));
        OK(MPI_Wait(&requests[i % 2], MPI_STATUS_IGNORE));
        for (int j = 0; j < LEN; j++) sum += (long)(i + 1) * block[i % 2][j];
    }
    OK(MPI_Win_unlock_all(win));
    for (int i = 0; i < BLOCKS * LEN; i++) expected += (long)(i / LEN + 1) * (right() + i);
    CHECK(sum == expected);
    return done();
}
