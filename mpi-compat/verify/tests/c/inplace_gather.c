/* MPI_IN_PLACE of a rooted call is for the root alone.
   ranks 2
   says VERIFY MPI_GATHER(1): sendbuf is MPI_IN_PLACE, which only the root may give */
#include "check.h"

int main(void) {
    int mine = 0, all[2] = {0};
    start();
    MPI_Gather(rank == 0 ? MPI_IN_PLACE : WRONG_AT(1, MPI_IN_PLACE, (void *)&mine), 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return finish();
}
