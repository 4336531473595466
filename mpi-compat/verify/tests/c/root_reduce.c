/* All ranks name one root.
   ranks 3
   says VERIFY MPI_REDUCE(1): root 1 inconsistent with root 0 of 0 */
#include "check.h"

int main(void) {
    int in[3] = {0}, out[3] = {0};
    start();
    MPI_Reduce(in, out, 1, MPI_INT, MPI_SUM, WRONG_AT(1, 1, 0), MPI_COMM_WORLD);
    return finish();
}
