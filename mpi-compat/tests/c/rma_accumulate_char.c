/* MPI_CHAR, for which the standard defines no operator, is accumulated as a signed char.
   ranks 1 2 */
#include "rma.h"

int main(void) {
    signed char *memory = (signed char *)begin(2), in[4] = {-2, 3, -4, 5}, old[4], before, swapped = 60;
    memset(memory, 0, 2 * sizeof(int));
    MPI_Barrier(MPI_COMM_WORLD);
    FENCE();
    OK(MPI_Accumulate(in, 4, MPI_CHAR, right(), 0, 4, MPI_CHAR, MPI_SUM, win));
    FENCE();
    for (int i = 0; i < 4; i++) CHECK(memory[i] == in[i]);
    FENCE();
    OK(MPI_Accumulate((const char[4]){0}, 4, MPI_CHAR, right(), 0, 4, MPI_CHAR, MPI_MAX, win));
    FENCE();
    CHECK(memory[0] == 0 && memory[1] == 3 && memory[2] == 0 && memory[3] == 5);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, win));
    OK(MPI_Get_accumulate(in, 4, MPI_CHAR, old, 4, MPI_CHAR, right(), 0, 4, MPI_CHAR, MPI_MIN, win));
    OK(MPI_Win_flush(right(), win));
    CHECK(old[0] == 0 && old[1] == 3 && old[2] == 0 && old[3] == 5);
    OK(MPI_Fetch_and_op(&in[3], &before, MPI_CHAR, right(), 0, MPI_SUM, win));
    OK(MPI_Win_flush(right(), win));
    CHECK(before == -2);
    before = 3;
    OK(MPI_Compare_and_swap(&swapped, &before, &old[0], MPI_CHAR, right(), 0, win));
    OK(MPI_Win_unlock(right(), win));
    CHECK(old[0] == 3);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    CHECK(memory[0] == 60 && memory[1] == 3 && memory[2] == -4 && memory[3] == 5);
    OK(MPI_Win_unlock(me, win));
    return done();
}
