/* MPI_Win_shared_query with MPI_PROC_NULL returns the memory of the first rank whose memory is not empty.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory, *first, unit, value = 0;
    MPI_Aint bytes;
    MPI_Comm node = begin_sharing();
    int owner = size > 1 ? 1 : 0;
    OK(MPI_Win_allocate_shared(me == owner ? 3 * sizeof(int) : 0, me == owner ? 4 : 1, MPI_INFO_NULL, node, &memory, &win));
    OK(MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &first));
    CHECK(bytes == 3 * sizeof(int) && unit == 4);
    OK(MPI_Win_fence(0, win));
    if (me == owner) memory[2] = 77;
    OK(MPI_Win_fence(0, win));
    value = first[2];
    CHECK(value == 77);
    OK(MPI_Win_free(&win));
    return finish();
}
