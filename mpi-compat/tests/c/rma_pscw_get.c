/* Gets between start and complete are complete after complete; the target may store after wait.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int neighbour, before, got[50], *memory = begin(50);
    neighbour = right();
    before = left();
    MPI_Group targets = group_of(1, &neighbour), origins = group_of(1, &before);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 50; i++) memory[i] = 1000 * round + 100 * me + i;
        OK(MPI_Win_post(origins, 0, win));
        OK(MPI_Win_start(targets, 0, win));
        GET(got, 50, neighbour, 0);
        OK(MPI_Win_complete(win));
        for (int i = 0; i < 50; i++) CHECK(got[i] == 1000 * round + 100 * neighbour + i);
        OK(MPI_Win_wait(win));
    }
    OK(MPI_Group_free(&targets));
    OK(MPI_Group_free(&origins));
    return done();
}
