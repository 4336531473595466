/* Stores and loads of a shared window ordered by MPI_Win_sync and a barrier (example of section 12.7).
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory, *other, unit;
    MPI_Aint bytes;
    MPI_Comm node = begin_sharing();
    OK(MPI_Win_allocate_shared(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, node, &memory, &win));
    OK(MPI_Win_shared_query(win, right(), &bytes, &unit, &other));
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    for (int round = 0; round < 50; round++) {
        memory[round % 2] = 10 * round + me;
        OK(MPI_Win_sync(win));
        OK(MPI_Barrier(node));
        OK(MPI_Win_sync(win));
        CHECK(other[round % 2] == 10 * round + right());
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
    return finish();
}
