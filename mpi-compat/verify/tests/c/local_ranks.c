/* A rank is named only once in a group.
   ranks 2
   says VERIFY MPI_GROUP_INCL(0): ranks[1]=0 occurs twice
   says VERIFY MPI_GROUP_INCL(1): ranks[1]=0 occurs twice */
#include "check.h"

int main(void) {
    MPI_Group world, some;
    start();
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    if (MPI_Group_incl(world, 2, IS_WRONG ? (int[]){0, 0} : (int[]){1, 0}, &some) == MPI_SUCCESS) MPI_Group_free(&some);
    MPI_Group_free(&world);
    return finish();
}
