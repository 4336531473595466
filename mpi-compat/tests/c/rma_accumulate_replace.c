/* MPI_Accumulate with MPI_REPLACE is a put that is atomic for each element.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { N = 50 };
    int values[N], *memory = begin(N);
    for (int i = 0; i < N; i++) values[i] = 100 * (me + 1);
    FENCE();
    OK(MPI_Accumulate(values, N, MPI_INT, 0, 0, N, MPI_INT, MPI_REPLACE, win));
    FENCE();
    for (int i = 0; i < N; i++)
        CHECK(me != 0 ? memory[i] == -1 : memory[i] >= 100 && memory[i] <= 100 * size && memory[i] % 100 == 0);
    return done();
}
