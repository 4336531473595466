/* A window over the middle of an array does not change the rest of the array.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int memory[30], values[10];
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 30; i++) memory[i] = -1;
    for (int i = 0; i < 10; i++) values[i] = 10 * me + i;
    OK(MPI_Win_create(memory + 10, 10 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    FENCE();
    PUT(values, 10, right(), 0);
    FENCE();
    for (int i = 0; i < 30; i++) CHECK(memory[i] == (i / 10 == 1 ? 10 * left() + i - 10 : -1));
    return done();
}
