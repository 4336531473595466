/* MPI_NO_OP reads, and ignores the origin arguments.
   ranks 1 2 3 4
   not on peers: MPICH looks at the type of the origin */
#include "rma.h"

int main(void) {
    int got[3] = {0}, *memory = begin(3);
    for (int i = 0; i < 3; i++) memory[i] = 10 * me + i;
    FENCE();
    OK(MPI_Get_accumulate(NULL, 0, MPI_DATATYPE_NULL, got, 3, MPI_INT, right(), 0, 3, MPI_INT, MPI_NO_OP, win));
    FENCE();
    for (int i = 0; i < 3; i++) CHECK(got[i] == 10 * right() + i && memory[i] == 10 * me + i);
    return done();
}
