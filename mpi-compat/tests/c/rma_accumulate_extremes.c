/* The greatest and the least value that any rank has.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value, *memory = begin(2);
    memory[0] = -50;
    memory[1] = 50;
    value = (me * 7 + 3) % 11 - 5;
    FENCE();
    for (int rank = 0; rank < size; rank++) {
        OK(MPI_Accumulate(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, MPI_MAX, win));
        OK(MPI_Accumulate(&value, 1, MPI_INT, rank, 1, 1, MPI_INT, MPI_MIN, win));
    }
    FENCE();
    int most = -50, least = 50;
    for (int rank = 0; rank < size; rank++) {
        int theirs = (rank * 7 + 3) % 11 - 5;
        most = theirs > most ? theirs : most;
        least = theirs < least ? theirs : least;
    }
    CHECK(memory[0] == most && memory[1] == least);
    return done();
}
