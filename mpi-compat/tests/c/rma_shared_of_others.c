/* MPI_Win_shared_query on windows that were not made by MPI_Win_allocate_shared: no memory, or memory that may be
   loaded.
   ranks 1 2 3 4
   not on peers: MPICH refuses it */
#include "rma.h"

int main(void) {
    int *memory = begin(2), *other = NULL, unit = -1;
    MPI_Aint bytes = -1;
    memory[0] = 30 + me;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_shared_query(win, right(), &bytes, &unit, &other));
    CHECK(bytes == 0 || bytes == 2 * sizeof(int));
    CHECK(bytes == 0 || (unit == sizeof(int) && other[0] == 30 + right()));
    OK(MPI_Win_fence(0, win));
    return done();
}
