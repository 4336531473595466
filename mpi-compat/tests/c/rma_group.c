/* The group of a window is that of its communicator, in its order.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    MPI_Comm turned;
    MPI_Group of_win, of_comm;
    int result, *memory, value, at;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Comm_split(MPI_COMM_WORLD, 0, -me, &turned));
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, turned, &memory, &win));
    OK(MPI_Win_get_group(win, &of_win));
    OK(MPI_Comm_group(turned, &of_comm));
    OK(MPI_Group_compare(of_win, of_comm, &result));
    CHECK(result == MPI_IDENT);
    OK(MPI_Group_rank(of_win, &at));
    CHECK(at == size - 1 - me);
    /* Targets are ranks of that group, and the communicator may go before the window. */
    OK(MPI_Comm_free(&turned));
    FENCE();
    value = me;
    PUT(&value, 1, (at + 1) % size, 0);
    FENCE();
    CHECK(*memory == (me + 1) % size);
    OK(MPI_Group_free(&of_win));
    OK(MPI_Group_free(&of_comm));
    return done();
}
