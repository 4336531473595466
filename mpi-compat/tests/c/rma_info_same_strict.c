/* The promises same_size and same_disp_unit are checked: an error at all ranks if one differs.
   ranks 2 3
   not on peers: MPICH does not look */
#include "rma.h"

int main(void) {
    MPI_Info info;
    int memory[4] = {0};
    start();
    me = rank_of(MPI_COMM_WORLD);
    info = info_with("same_size", "true");
    FAILS(MPI_ERR_SIZE, MPI_Win_create(memory, me == 1 ? 8 : 16, 4, info, MPI_COMM_WORLD, &win));
    OK(MPI_Win_create(memory, 16, me + 1, info, MPI_COMM_WORLD, &win));
    CHECK(has_hint(win, "same_size", "true"));
    CHECK(has_hint(win, "same_disp_unit", "false"));
    OK(MPI_Win_free(&win));
    OK(MPI_Info_free(&info));
    info = info_with("same_disp_unit", "true");
    FAILS(MPI_ERR_DISP, MPI_Win_create(memory, 16, me == 1 ? 1 : 2, info, MPI_COMM_WORLD, &win));
    OK(MPI_Win_create(memory, 4 * me, 2, info, MPI_COMM_WORLD, &win));
    OK(MPI_Win_free(&win));
    OK(MPI_Info_free(&info));
    return finish();
}
