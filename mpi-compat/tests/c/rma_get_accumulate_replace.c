/* MPI_REPLACE exchanges: every value is seen once, as a result or at the end.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int mine, old = -1, sum, *memory = begin(1);
    *memory = 1000;
    mine = me + 1;
    FENCE();
    OK(MPI_Get_accumulate(&mine, 1, MPI_INT, &old, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_REPLACE, win));
    FENCE();
    OK(MPI_Reduce(&old, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD));
    CHECK(me != 0 || sum + *memory == 1000 + size * (size + 1) / 2);
    return done();
}
