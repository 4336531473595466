/* Ranks that allocate no memory access that of others.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory, value, got = -1;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int last = size - 1;
    OK(MPI_Win_allocate(me == last ? size * sizeof(int) : 0, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    FENCE();
    value = me + 3;
    PUT(&value, 1, last, me);
    FENCE();
    for (int i = 0; me == last && i < size; i++) CHECK(memory[i] == i + 3);
    MPI_Barrier(MPI_COMM_WORLD);
    GET(&got, 1, last, (me + 1) % size);
    FENCE();
    CHECK(got == (me + 1) % size + 3);
    return done();
}
