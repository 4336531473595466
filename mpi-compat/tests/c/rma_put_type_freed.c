/* A type may be freed while operations that use it are in progress.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { N = 2000 };
    int *values = malloc(N * sizeof(int)), *memory = begin(2 * N);
    MPI_Datatype second;
    for (int i = 0; i < N; i++) values[i] = me + i;
    OK(MPI_Type_vector(N, 1, 2, MPI_INT, &second));
    OK(MPI_Type_commit(&second));
    FENCE();
    OK(MPI_Put(values, N, MPI_INT, right(), 0, 1, second, win));
    OK(MPI_Type_free(&second));
    FENCE();
    for (int i = 0; i < 2 * N; i++) CHECK(memory[i] == (i % 2 ? -1 : left() + i / 2));
    free(values);
    return done();
}
