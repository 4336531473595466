/* A dynamic window begins at MPI_BOTTOM, has size 0 and unit 1.
   ranks 1 2 */
#include "rma.h"

int main(void) {
    void *base = &win;
    MPI_Aint *bytes;
    int *unit, flag;
    start();
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag));
    CHECK(flag && base == MPI_BOTTOM);
    OK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag));
    CHECK(flag && *bytes == 0);
    OK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag));
    CHECK(flag && *unit == 1);
    OK(MPI_Win_free(&win));
    return finish();
}
