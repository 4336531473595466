/* Logical operators on integers give 0 and 1.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, *memory = begin(3);
    memory[0] = 5;
    memory[1] = 0;
    memory[2] = 0;
    value = me == size - 1 ? 0 : 7;
    FENCE();
    OK(MPI_Accumulate(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, MPI_LAND, win));
    OK(MPI_Accumulate(&value, 1, MPI_INT, right(), 1, 1, MPI_INT, MPI_LOR, win));
    OK(MPI_Accumulate(&value, 1, MPI_INT, right(), 2, 1, MPI_INT, MPI_LXOR, win));
    FENCE();
    int said = left() != size - 1;
    CHECK(memory[0] == said && memory[1] == said && memory[2] == said);
    return done();
}
