/* MPI_WIN_CREATE_FLAVOR tells how a window was made, MPI_WIN_MODEL its memory model.
   ranks 1 2 */
#include "rma.h"

int main(void) {
    int *memory, own = 0, *flavor, *model, flag;
    const int flavors[] = {MPI_WIN_FLAVOR_CREATE, MPI_WIN_FLAVOR_ALLOCATE, MPI_WIN_FLAVOR_DYNAMIC, MPI_WIN_FLAVOR_SHARED};
    start();
    for (int i = 0; i < 4; i++) {
        if (i == 0) OK(MPI_Win_create(&own, sizeof own, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        if (i == 1) OK(MPI_Win_allocate(4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
        if (i == 2) OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        if (i == 3) OK(MPI_Win_allocate_shared(4, 1, MPI_INFO_NULL, MPI_COMM_SELF, &memory, &win));
        OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag));
        CHECK(flag && *flavor == flavors[i]);
        OK(MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag));
        CHECK(flag && (*model == MPI_WIN_UNIFIED || *model == MPI_WIN_SEPARATE));
        OK(MPI_Win_free(&win));
    }
    return finish();
}
