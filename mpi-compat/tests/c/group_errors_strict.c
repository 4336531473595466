/* A rank may be in a group only once.
   ranks 2
   not on peers: MPICH does not look at this */
#include "check.h"

int main(void) {
    MPI_Group world, some;
    start();
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    FAILS(MPI_ERR_RANK, MPI_Group_incl(world, 2, (int[]){1, 1}, &some));
    return finish();
}
