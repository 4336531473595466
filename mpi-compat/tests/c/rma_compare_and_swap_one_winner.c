/* If all ranks compare with the same value one swap succeeds, and the others return the value that it has stored.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int mine, free_value = -1, got = -2, winners, *memory = begin(1);
    mine = 10 + me;
    FENCE();
    OK(MPI_Compare_and_swap(&mine, &free_value, &got, MPI_INT, 0, 0, win));
    FENCE();
    int won = got == -1;
    OK(MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(winners == 1);
    int winner = won ? mine : 0, value;
    OK(MPI_Allreduce(&winner, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    CHECK(won || got == value);
    CHECK(me != 0 || *memory == value);
    return done();
}
