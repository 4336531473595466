/* Two windows alternate: one is computed in while the other is exposed (example of section 12.5.2).
   ranks 1 2 3 4 */
#include "rma_steps.h"

int main(void) {
    int own, to, from, *memory[2];
    MPI_Win wins[2];
    memory[0] = begin(1);
    wins[0] = win;
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory[1], &wins[1]));
    to = right();
    from = left();
    MPI_Group targets = group_of(1, &to), origins = group_of(1, &from);
    own = me + 1;
    OK(MPI_Win_post(origins, 0, wins[0]));
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Win now = wins[round % 2];
        if (round + 1 < ROUNDS) OK(MPI_Win_post(origins, 0, wins[(round + 1) % 2]));
        OK(MPI_Win_start(targets, 0, now));
        OK(MPI_Put(&own, 1, MPI_INT, to, 0, 1, MPI_INT, now));
        OK(MPI_Win_complete(now));
        OK(MPI_Win_wait(now));
        own = step(own, *memory[round % 2]);
    }
    CHECK(own == expected());
    OK(MPI_Group_free(&targets));
    OK(MPI_Group_free(&origins));
    OK(MPI_Win_free(&wins[1]));
    return done();
}
