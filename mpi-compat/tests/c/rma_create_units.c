/* Displacements are multiplied by the target's displacement unit.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    char memory[64];
    int unit;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    unit = me + 1;
    memset(memory, 'x', sizeof memory);
    OK(MPI_Win_create(memory, sizeof memory, unit, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    FENCE();
    for (int target = 0; target < size; target++)
        OK(MPI_Put("abcd" + me, 1, MPI_CHAR, target, 2 + 3 * me, 1, MPI_CHAR, win));
    FENCE();
    for (int i = 0; i < (int)sizeof memory; i++) {
        int at = i / unit - 2, origin = at / 3;
        int written = i % unit == 0 && at >= 0 && at % 3 == 0 && origin < size;
        CHECK(memory[i] == (written ? "abcd"[origin] : 'x'));
    }
    return done();
}
