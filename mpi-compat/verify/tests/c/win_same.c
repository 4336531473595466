/* With same_size and same_disp_unit all ranks give the same size and unit.
   ranks 3
   says VERIFY MPI_WIN_CREATE(1): size 8 inconsistent with size 16 of 0
   says VERIFY MPI_WIN_CREATE(2): disp_unit 4 inconsistent with disp_unit 1 of 0 */
#define HANDLED 2
#include "check.h"

static void make(const char *hint, int size, int unit) {
    MPI_Win win = MPI_WIN_NULL;
    MPI_Info info;
    int memory[4] = {0};
    MPI_Info_create(&info);
    MPI_Info_set(info, hint, "true");
    MPI_Win_create(memory, size, unit, info, MPI_COMM_WORLD, &win);
    if (win != MPI_WIN_NULL) MPI_Win_free(&win);
    MPI_Info_free(&info);
}

int main(void) {
    start();
    make("same_size", WRONG_AT(1, 8, 16), rank + 1);
    make("same_disp_unit", 4 * rank, WRONG_AT(2, 4, 1));
    return finish();
}
