/* Post asserts that hold do not change the results: no store before, no put after.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int neighbour, before, got = -1, *memory = begin(1);
    neighbour = right();
    before = left();
    MPI_Group targets = group_of(1, &neighbour), origins = group_of(1, &before);
    *memory = 60 + me;
    OK(MPI_Win_post(origins, MPI_MODE_NOPUT, win));
    OK(MPI_Win_start(targets, 0, win));
    GET(&got, 1, neighbour, 0);
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    CHECK(got == 60 + neighbour);
    OK(MPI_Win_post(origins, MPI_MODE_NOSTORE | MPI_MODE_NOPUT, win));
    OK(MPI_Win_start(targets, 0, win));
    GET(&got, 1, neighbour, 0);
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    CHECK(got == 60 + neighbour);
    OK(MPI_Group_free(&targets));
    OK(MPI_Group_free(&origins));
    return done();
}
