/* MPI_Win_free waits for accesses of other ranks in lock epochs: their values are in memory afterwards.
   ranks 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory = malloc(sizeof(int) * 4), value, got = 0;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 4; i++) memory[i] = -1;
    OK(MPI_Win_create(memory, 4 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    if (me > 0) {
        for (int first = 9; first <= 10; first++) {
            value = first + me;
            OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
            PUT(&value, 1, 0, me);
            OK(MPI_Win_unlock(0, win));
            if (first == 10) break;
            OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
            GET(&got, 1, 0, me);
            OK(MPI_Win_unlock(0, win));
            CHECK(got == value);
        }
    }
    OK(MPI_Win_free(&win));
    for (int i = 0; i < 4; i++) CHECK(memory[i] == (me == 0 && i > 0 && i < size ? 10 + i : -1));
    free(memory);
    return finish();
}
