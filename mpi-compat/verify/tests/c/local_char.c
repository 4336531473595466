/* MPI_CHAR is for text: no predefined operator is defined on it.
   ranks 2
   says VERIFY MPI_ALLREDUCE(1): op MPI_SUM is not defined on MPI_CHAR
   says VERIFY MPI_REDUCE_LOCAL(0): op MPI_MAX is not defined on MPI_CHAR
   says VERIFY MPI_ACCUMULATE(0): op MPI_SUM is not defined on MPI_CHAR
   says VERIFY MPI_FETCH_AND_OP(0): op MPI_BOR is not defined on MPI_CHAR
   says VERIFY MPI_COMPARE_AND_SWAP(0): a compare-and-swap is not defined on MPI_CHAR */
#define HANDLED (rank == 0 ? 5 : 1)
#include "check.h"

int main(void) {
    MPI_Win win;
    signed char a[2] = {0}, b[2] = {0}, old, memory[4] = {0};
    MPI_Datatype type = IS_WRONG ? MPI_CHAR : MPI_SIGNED_CHAR;
    start();
    MPI_Allreduce(a, b, 2, WRONG_AT(1, MPI_CHAR, MPI_SIGNED_CHAR), MPI_SUM, MPI_COMM_WORLD);
    MPI_Win_create(memory, 4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    handle_win(win);
    MPI_Win_fence(0, win);
    if (rank == 0) {
        MPI_Reduce_local(a, b, 2, type, MPI_MAX);
        MPI_Accumulate(a, 2, type, 1, 0, 2, type, MPI_SUM, win);
        MPI_Accumulate(a, 2, MPI_CHAR, 1, 0, 2, MPI_CHAR, MPI_REPLACE, win);
        MPI_Fetch_and_op(a, &old, type, 1, 2, MPI_BOR, win);
        MPI_Compare_and_swap(a, b, &old, type, 1, 3, win);
    }
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
    return finish();
}
