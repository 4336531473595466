/* Records that arrive early, for calls with other ranks, are kept for those calls: three groups in a row, each with
   its neighbours, and communicators of overlapping groups, all with one tag.
   ranks 4
   level 2
   says VERIFY MPI_COMM_CREATE_GROUP(2): group {2,3} inconsistent with group {3,2} of 3
   says VERIFY MPI_COMM_CREATE_GROUP(3): group {3,2} inconsistent with group {2,3} of 2
   says It was a call on MPI_COMM_WORLD, of 2 ranks, 2 complaints in all; it was not made. */
#define HANDLED (rank >= 2)
#include "check.h"
#include <unistd.h>

static void join(MPI_Comm own, int with, int tag) {
    MPI_Comm both = MPI_COMM_NULL;
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, with, tag, &both);
    if (both == MPI_COMM_NULL) printf("FAILED rank %d: no intercommunicator with %d\n", rank, with);
    else MPI_Comm_free(&both);
}

static void group(MPI_Group world, int a, int b) {
    MPI_Group two;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Group_incl(world, 2, (int[]){a, b}, &two);
    MPI_Comm_create_group(MPI_COMM_WORLD, two, 0, &comm);
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    else if (a != 3 && b != 3) printf("FAILED rank %d: no communicator of {%d,%d}\n", rank, a, b);
    MPI_Group_free(&two);
}

int main(void) {
    MPI_Comm own;
    MPI_Group world;
    start();
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &own);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    /* Rank 2 comes to rank 1, and rank 3 to rank 2, before rank 0 does. */
    if (rank == 0) usleep(300000);
    if (rank == 0) join(own, 1, 1);
    if (rank == 1) join(own, 0, 1), join(own, 2, 12);
    if (rank == 2) join(own, 1, 12);
    if (rank == 0) usleep(300000);
    if (rank == 0 || rank == 2) group(world, 0, 2);
    if (rank == 2) group(world, 2, 3);
    if (rank == 3) group(world, WRONG_AT(3, 3, 2), WRONG_AT(3, 2, 3));
    MPI_Group_free(&world);
    MPI_Comm_free(&own);
    return finish();
}
