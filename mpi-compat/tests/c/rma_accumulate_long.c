/* A sum over tens of thousands of elements, by all ranks on all targets.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    const int N = rounds(30000);
    double *memory, *values = malloc(N * sizeof(double));
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(N * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    for (int i = 0; i < N; i++) {
        memory[i] = i;
        values[i] = me + 1;
    }
    FENCE();
    for (int rank = 0; rank < size; rank++)
        OK(MPI_Accumulate(values, N, MPI_DOUBLE, rank, 0, N, MPI_DOUBLE, MPI_SUM, win));
    FENCE();
    for (int i = 0; i < N; i++) CHECK(memory[i] == i + size * (size + 1) / 2);
    free(values);
    return done();
}
