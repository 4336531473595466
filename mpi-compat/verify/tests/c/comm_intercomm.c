/* All ranks of a group name one leader and one tag, and both groups, whose leaders compare their tags, name one tag.
   ranks 4
   says VERIFY MPI_INTERCOMM_CREATE(1): local_leader 1 inconsistent with local_leader 0 of 0
   says VERIFY MPI_INTERCOMM_CREATE(1): tag 8 inconsistent with tag 7 of 0
   says VERIFY MPI_INTERCOMM_CREATE(0): tag 7 inconsistent with tag 9 of the other leader
   says VERIFY MPI_INTERCOMM_CREATE(0): tag 9 inconsistent with tag 7 of the other leader */
#define HANDLED 3
#include "check.h"

static void join(MPI_Comm half, int leader, int tag) {
    MPI_Comm both = MPI_COMM_NULL;
    MPI_Intercomm_create(half, leader, MPI_COMM_WORLD, rank < 2 ? 2 : 0, tag, &both);
    if (both != MPI_COMM_NULL) MPI_Comm_free(&both);
}

int main(void) {
    MPI_Comm half;
    start();
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2, rank, &half);
    handle(half);
    join(half, IS_WRONG && rank % 2 ? 1 : 0, 7);
    join(half, 0, IS_WRONG && rank % 2 ? 8 : 7);
    join(half, 0, IS_WRONG && rank < 2 ? 9 : 7);
    MPI_Comm_free(&half);
    return finish();
}
