/* A put with count 0 changes nothing, whatever its address.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value = 9, *memory = begin(2);
    FENCE();
    OK(MPI_Put(&value, 0, MPI_INT, right(), 0, 0, MPI_INT, win));
    OK(MPI_Put(NULL, 0, MPI_INT, right(), 1, 0, MPI_INT, win));
    OK(MPI_Get(&value, 0, MPI_INT, right(), 0, 0, MPI_INT, win));
    OK(MPI_Accumulate(&value, 0, MPI_INT, right(), 0, 0, MPI_INT, MPI_SUM, win));
    FENCE();
    CHECK(memory[0] == -1 && memory[1] == -1 && value == 9);
    return done();
}
