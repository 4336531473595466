/* Each rank gets an address for the memory of every other, and stores there.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory, *other, unit;
    MPI_Aint bytes;
    MPI_Comm node = begin_sharing();
    OK(MPI_Win_allocate_shared(size * sizeof(int), sizeof(int), MPI_INFO_NULL, node, &memory, &win));
    FENCE();
    for (int rank = 0; rank < size; rank++) {
        OK(MPI_Win_shared_query(win, rank, &bytes, &unit, &other));
        CHECK(bytes == (MPI_Aint)(size * sizeof(int)) && unit == sizeof(int));
        CHECK(rank != me || other == memory);
        other[me] = 100 * rank + me;
    }
    FENCE();
    for (int i = 0; i < size; i++) CHECK(memory[i] == 100 * me + i);
    OK(MPI_Win_free(&win));
    return finish();
}
