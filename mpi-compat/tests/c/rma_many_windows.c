/* Sixty windows at a time, each with its own epoch.
   ranks 1 2 4 */
#include "rma.h"

int main(void) {
    enum { WINDOWS = 60 };
    MPI_Win wins[WINDOWS];
    int *memory[WINDOWS], values[WINDOWS];
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < WINDOWS; i++) {
        OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory[i], &wins[i]));
        *memory[i] = -1;
    }
    for (int i = 0; i < WINDOWS; i++) OK(MPI_Win_fence(0, wins[i]));
    for (int i = 0; i < WINDOWS; i++) {
        values[i] = 1000 * me + i;
        OK(MPI_Put(&values[i], 1, MPI_INT, right(), 0, 1, MPI_INT, wins[i]));
    }
    for (int i = WINDOWS - 1; i >= 0; i--) OK(MPI_Win_fence(0, wins[i]));
    for (int i = 0; i < WINDOWS; i++) CHECK(*memory[i] == 1000 * left() + i);
    overwritten(wins[0], MPI_COMM_WORLD);
    for (int i = 0; i < WINDOWS; i++) OK(MPI_Win_free(&wins[i]));
    return finish();
}
