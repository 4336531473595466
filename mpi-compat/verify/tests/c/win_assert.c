/* Some asserts of a fence must be given either by all ranks or by none.
   ranks 2
   level 4
   says VERIFY MPI_WIN_FENCE(1): assert MPI_MODE_NOPRECEDE inconsistent with assert 0 of 0 */
#include "check.h"

int main(void) {
    MPI_Win win;
    int memory[4] = {0};
    start();
    MPI_Win_create(memory, 16, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    handle_win(win);
    MPI_Win_fence(WRONG_AT(1, MPI_MODE_NOPRECEDE, 0), win);
    MPI_Win_fence(rank ? MPI_MODE_NOSTORE | MPI_MODE_NOSUCCEED : MPI_MODE_NOSUCCEED, win);
    MPI_Win_free(&win);
    return finish();
}
