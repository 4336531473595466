/* Products of single precision numbers.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    float *memory, factor = 2;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(sizeof(float), sizeof(float), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    *memory = 1.5f;
    FENCE();
    for (int rank = 0; rank < size; rank++)
        for (int i = 0; i < 3; i++) OK(MPI_Accumulate(&factor, 1, MPI_FLOAT, rank, 0, 1, MPI_FLOAT, MPI_PROD, win));
    FENCE();
    float expected = 1.5f;
    for (int i = 0; i < 3 * size; i++) expected *= 2;
    CHECK(*memory == expected);
    return done();
}
