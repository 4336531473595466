/* All ranks of a window make, fence and free it.
   ranks 3
   says VERIFY MPI_WIN_ALLOCATE(1): call inconsistent with call to MPI_Win_create by 0 */
#include "check.h"

int main(void) {
    MPI_Win win = MPI_WIN_NULL;
    int memory[4] = {0}, *other, code;
    start();
    if (WRONG_AT(1, 1, 0)) code = MPI_Win_allocate(16, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &other, &win);
    else code = MPI_Win_create(memory, 16, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (code == MPI_SUCCESS) {
        MPI_Win_fence(0, win);
        MPI_Put(&rank, 1, MPI_INT, (rank + 1) % 3, 3, 1, MPI_INT, win);
        MPI_Win_fence(0, win);
        if (memory[3] != (rank + 2) % 3) printf("FAILED\n");
        MPI_Win_free(&win);
    }
    return finish();
}
