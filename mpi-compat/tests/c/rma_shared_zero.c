/* Ranks without memory in a shared window, between ranks with memory: the window is still contiguous.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory, *first, unit;
    MPI_Aint bytes;
    MPI_Comm node = begin_sharing();
    OK(MPI_Win_allocate_shared(me % 2 ? 0 : 2 * sizeof(int), sizeof(int), MPI_INFO_NULL, node, &memory, &win));
    OK(MPI_Win_shared_query(win, 0, &bytes, &unit, &first));
    CHECK(bytes == 2 * sizeof(int));
    FENCE();
    if (me % 2 == 0)
        for (int i = 0; i < 2; i++) memory[i] = me + i;
    FENCE();
    for (int i = 0; i < (size + 1) / 2 * 2; i++) CHECK(first[i] == i);
    OK(MPI_Win_free(&win));
    return finish();
}
