/* A rank may pass a null pointer as its memory, and still access that of others.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, *mine, memory[4] = {-1, -1, -1, -1};
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mine = me == 0 ? memory : NULL;
    OK(MPI_Win_create(mine, me == 0 ? sizeof memory : 0, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    FENCE();
    value = 7 * me;
    PUT(&value, 1, 0, me);
    FENCE();
    for (int i = 0; i < 4; i++) CHECK(memory[i] == (me == 0 && i < size ? 7 * i : -1));
    return done();
}
