/* Below level 3 Info objects are not compared; other arguments are.
   ranks 2
   level 2
   says VERIFY MPI_WIN_CREATE(1): disp_unit=0 <= 0 */
#include "check.h"

int main(void) {
    MPI_Win win = MPI_WIN_NULL;
    MPI_Info info;
    int memory[4] = {0};
    start();
    MPI_Info_create(&info);
    MPI_Info_set(info, "some_key", rank ? "1" : "2");
    MPI_Win_create(memory, 16, WRONG_AT(1, 0, 4), info, MPI_COMM_WORLD, &win);
    if (win != MPI_WIN_NULL) {
        MPI_Win_fence(rank ? MPI_MODE_NOSTORE : 0, win);
        MPI_Win_free(&win);
    }
    MPI_Info_free(&info);
    return finish();
}
