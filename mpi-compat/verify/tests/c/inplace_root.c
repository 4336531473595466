/* Only the root of a rooted call may give MPI_IN_PLACE.
   ranks 2
   says VERIFY MPI_GATHER(1): sendbuf is MPI_IN_PLACE, which only the root may pass
   says VERIFY MPI_SCATTER(1): recvbuf is MPI_IN_PLACE, which only the root may pass
   says VERIFY MPI_REDUCE(1): sendbuf is MPI_IN_PLACE, which only the root may pass */
#define HANDLED 3
#include "check.h"

int main(void) {
    int mine = 0, all[2] = {0};
    void *own;
    start();
    own = rank == 0 || IS_WRONG ? MPI_IN_PLACE : (void *)&mine;
    MPI_Gather(own, 1, MPI_INT, all, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Scatter(all, 1, MPI_INT, own, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Reduce(own, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    return finish();
}
