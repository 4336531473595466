/* Two windows in turn: a round is computed in one while the other is exposed (example of section 12.5.2).
   ranks 1 2 3 4 */
#include "rma.h"

enum { ROUNDS = 12 };

/* One step of a computation, and the result of all steps without communication. */
static int step(int own, int from_left) { return 2 * own % 1000 + from_left; }

static void expected(int total, int *values) {
    int next[8];
    for (int i = 0; i < total; i++) values[i] = i + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < total; i++) next[i] = step(values[i], values[(i + total - 1) % total]);
        memcpy(values, next, total * sizeof(int));
    }
}

int main(void) {
    int own, values[8], to, from, *memory[2];
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
    expected(size, values);
    CHECK(own == values[me]);
    OK(MPI_Group_free(&targets));
    OK(MPI_Group_free(&origins));
    OK(MPI_Win_free(&wins[1]));
    return done();
}
