/* Detached memory is attached again, and other memory takes its place.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int first[4] = {-1, -1, -1, -1}, second[4] = {-1, -1, -1, -1}, value;
    MPI_Aint at, there;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int round = 0; round < 4; round++) {
        int *memory = round % 2 ? second : first;
        OK(MPI_Win_attach(win, memory, sizeof first));
        OK(MPI_Get_address(memory, &at));
        OK(MPI_Sendrecv(&at, 1, MPI_AINT, left(), 0, &there, 1, MPI_AINT, right(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        FENCE();
        value = 10 * round + me;
        PUT(&value, 1, right(), MPI_Aint_add(there, round * sizeof(int)));
        FENCE();
        CHECK(memory[round] == 10 * round + left());
        overwritten_at(win, MPI_COMM_WORLD, memory, at, sizeof first);
        OK(MPI_Win_detach(win, memory));
    }
    OK(MPI_Win_free(&win));
    return finish();
}
