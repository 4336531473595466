/* All ranks give the same root. The second call is example 2 of the paper: rank 0 is the intended root, and one rank
   gives the last rank.
   ranks 3
   says VERIFY MPI_BCAST(1): root 1 inconsistent with root 0 of 0
   says VERIFY MPI_GATHER(2): root 2 inconsistent with root 0 of 0
   says VERIFY MPI_GATHERV(2): root 1 inconsistent with root 0 of 0
   says VERIFY MPI_SCATTER(1): root 1 inconsistent with root 0 of 0
   says VERIFY MPI_SCATTERV(2): root 1 inconsistent with root 0 of 0
   says VERIFY MPI_REDUCE(1): root 1 inconsistent with root 0 of 0 */
#define HANDLED 6
#include "check.h"

int main(void) {
    int value = 0, mine = 0, all[3] = {0}, in[3] = {0}, out[3] = {0}, counts[3] = {1, 1, 1}, places[3] = {0, 1, 2};
    start();
    MPI_Bcast(&value, 1, MPI_INT, WRONG_AT(1, 1, 0), MPI_COMM_WORLD);
    MPI_Gather(&mine, 1, MPI_INT, all, 1, MPI_INT, WRONG_AT(2, 2, 0), MPI_COMM_WORLD);
    MPI_Gatherv(in, 1, MPI_INT, out, counts, places, MPI_INT, WRONG_AT(2, 1, 0), MPI_COMM_WORLD);
    MPI_Scatter(out, 1, MPI_INT, in, 1, MPI_INT, WRONG_AT(1, 1, 0), MPI_COMM_WORLD);
    MPI_Scatterv(in, counts, places, MPI_INT, out, 1, MPI_INT, WRONG_AT(2, 1, 0), MPI_COMM_WORLD);
    MPI_Reduce(in, out, 1, MPI_INT, MPI_SUM, WRONG_AT(1, 1, 0), MPI_COMM_WORLD);
    return finish();
}
