/* Counts must not be negative; all ranks get the error.
   ranks 3
   says VERIFY MPI_GATHERV(0): recvcounts[1]=-4 < 0 */
#include "check.h"

int main(void) {
    int in[3] = {0}, out[3] = {0}, counts[3] = {1, 1, 1}, places[3] = {0, 1, 2};
    start();
    counts[1] = WRONG_AT(0, -4, 1);
    MPI_Gatherv(in, 1, MPI_INT, out, rank ? NULL : counts, rank ? NULL : places, MPI_INT, 0, MPI_COMM_WORLD);
    return finish();
}
