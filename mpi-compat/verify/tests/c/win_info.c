/* All ranks give the same keys and values.
   ranks 2
   level 3
   says VERIFY MPI_WIN_CREATE(1): info {no_locks=true} inconsistent with info {no_locks=false} of 0 */
#include "check.h"

int main(void) {
    MPI_Win win = MPI_WIN_NULL;
    MPI_Info info;
    int memory[4] = {0};
    start();
    MPI_Info_create(&info);
    MPI_Info_set(info, "no_locks", WRONG_AT(1, "true", "false"));
    MPI_Win_create(memory, 16, 4, info, MPI_COMM_WORLD, &win);
    if (win != MPI_WIN_NULL) {
        MPI_Win_set_info(win, info);
        MPI_Win_free(&win);
    }
    MPI_Info_free(&info);
    return finish();
}
