/* Operations on MPI_PROC_NULL have no effect.
   ranks 1 2 */
#include "check.h"

int main(void) {
    int base = 5, value = 7;
    MPI_Win win;
    start();
    OK(MPI_Win_create(&base, sizeof base, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win));
    OK(MPI_Get(&value, 1, MPI_INT, MPI_PROC_NULL, 9999, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(base == 5 && value == 7);
    OK(MPI_Win_free(&win));
    return finish();
}
