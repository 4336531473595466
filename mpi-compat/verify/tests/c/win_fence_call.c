/* The calls on a window form their own sequence; the error handler of the window is called.
   ranks 2
   says VERIFY MPI_WIN_FREE(1): call inconsistent with call to MPI_Win_fence by 0 */
#include "check.h"

int main(void) {
    MPI_Win win;
    int memory[4] = {0};
    start();
    MPI_Win_create(memory, 16, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    handle_win(win);
    if (WRONG_AT(1, 1, 0)) MPI_Win_free(&win);
    else MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    return finish();
}
