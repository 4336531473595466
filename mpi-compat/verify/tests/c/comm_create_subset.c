/* The members of the group must be in the communicator.
   ranks 3
   says VERIFY MPI_COMM_CREATE(0): rank 1 of the group is not in the communicator */
#include "check.h"

int main(void) {
    MPI_Group world, pair;
    MPI_Comm half, comm = MPI_COMM_NULL;
    start();
    MPI_Comm_split(MPI_COMM_WORLD, rank == 2, rank, &half);
    handle(half);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 2, IS_WRONG ? (int[]){0, 2} : (int[]){0, 1}, &pair);
    if (rank < 2) MPI_Comm_create(half, pair, &comm);
    else handled = IS_WRONG;
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    MPI_Group_free(&pair);
    MPI_Group_free(&world);
    MPI_Comm_free(&half);
    return finish();
}
