/* Every rank sets, clears and flips its own bits of one word.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    unsigned bit, mask, *memory = (unsigned *)begin(3);
    memory[0] = 0;
    memory[1] = 0xff;
    memory[2] = 0x0f;
    bit = 1u << me;
    mask = ~bit;
    FENCE();
    OK(MPI_Accumulate(&bit, 1, MPI_UNSIGNED, 0, 0, 1, MPI_UNSIGNED, MPI_BOR, win));
    OK(MPI_Accumulate(&mask, 1, MPI_UNSIGNED, 0, 1, 1, MPI_UNSIGNED, MPI_BAND, win));
    OK(MPI_Accumulate(&bit, 1, MPI_UNSIGNED, 0, 2, 1, MPI_UNSIGNED, MPI_BXOR, win));
    FENCE();
    unsigned all = (1u << size) - 1;
    if (me == 0) CHECK(memory[0] == all && memory[1] == (0xff & ~all) && memory[2] == (0x0f ^ all));
    return done();
}
