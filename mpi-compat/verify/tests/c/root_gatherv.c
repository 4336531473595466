/* All ranks name one root.
   ranks 3
   says VERIFY MPI_GATHERV(2): root 1 inconsistent with root 0 of 0 */
#include "check.h"

int main(void) {
    int in[3] = {0}, out[3] = {0}, counts[3] = {1, 1, 1}, places[3] = {0, 1, 2};
    start();
    MPI_Gatherv(in, 1, MPI_INT, out, counts, places, MPI_INT, WRONG_AT(2, 1, 0), MPI_COMM_WORLD);
    return finish();
}
