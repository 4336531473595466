/* Windows that are allocated at the same time have separate memory, also after others were freed.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory[3];
    MPI_Win wins[3];
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 3; i++) {
            OK(MPI_Win_allocate(1000 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory[i], &wins[i]));
            for (int j = 0; j < 1000; j++) memory[i][j] = i;
            OK(MPI_Win_fence(0, wins[i]));
        }
        for (int i = 0; i < 3; i++) {
            int value = 50 + i + round;
            OK(MPI_Put(&value, 1, MPI_INT, right(), 999, 1, MPI_INT, wins[i]));
            OK(MPI_Win_fence(0, wins[i]));
            CHECK(memory[i][999] == 50 + i + round);
            MPI_Barrier(MPI_COMM_WORLD);
        }
        for (int i = 0; i < 3; i++) {
            CHECK(memory[i][999] == 50 + i + round && memory[i][0] == i && memory[i][998] == i);
            if (i == 0) overwritten(wins[i], MPI_COMM_WORLD);
            OK(MPI_Win_free(&wins[i]));
        }
    }
    return finish();
}
