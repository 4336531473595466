/* MPI_Get_accumulate returns the former value: additions of one return every number once.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int one = 1, old[20], seen[80] = {0}, all[80], *memory = begin(1);
    *memory = 0;
    FENCE();
    for (int i = 0; i < 20; i++) OK(MPI_Get_accumulate(&one, 1, MPI_INT, &old[i], 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    FENCE();
    CHECK(me != 0 || *memory == 20 * size);
    for (int i = 1; i < 20; i++) CHECK(old[i] > old[i - 1]);
    OK(MPI_Gather(old, 20, MPI_INT, all, 20, MPI_INT, 0, MPI_COMM_WORLD));
    for (int i = 0; me == 0 && i < 20 * size; i++) seen[all[i]]++;
    for (int i = 0; me == 0 && i < 20 * size; i++) CHECK(seen[i] == 1);
    return done();
}
