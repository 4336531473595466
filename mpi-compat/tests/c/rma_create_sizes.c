/* Every rank exposes memory of another size; attributes return the rank's own values.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int memory[8], *unit, flag, value;
    void *base;
    MPI_Aint *bytes;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int n = me + 1;
    for (int i = 0; i < 8; i++) memory[i] = -1;
    OK(MPI_Win_create(memory, n * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag));
    CHECK(flag && base == memory);
    OK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag));
    CHECK(flag && *bytes == (MPI_Aint)(n * sizeof(int)));
    OK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag));
    CHECK(flag && *unit == sizeof(int));
    FENCE();
    /* The last element of each rank. */
    value = 100 + me;
    PUT(&value, 1, right(), right());
    FENCE();
    for (int i = 0; i < 8; i++) CHECK(memory[i] == (i == me ? 100 + left() : -1));
    return done();
}
