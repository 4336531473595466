/* MPI_Fetch_and_op with MPI_NO_OP reads one element.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int got = -1, *memory = begin(4);
    for (int i = 0; i < 4; i++) memory[i] = 10 * me + i;
    FENCE();
    OK(MPI_Fetch_and_op(NULL, &got, MPI_INT, right(), 3, MPI_NO_OP, win));
    FENCE();
    CHECK(got == 10 * right() + 3 && memory[3] == 10 * me + 3);
    return done();
}
