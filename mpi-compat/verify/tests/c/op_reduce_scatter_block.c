/* All ranks give one predefined operator.
   ranks 3
   says VERIFY MPI_REDUCE_SCATTER_BLOCK(1): op MPI_MAX inconsistent with op MPI_SUM of 0 */
#include "check.h"

int main(void) {
    int in[3] = {0}, out[3] = {0}, counts[3] = {1, 1, 1};
    (void)counts;
    start();
    MPI_Reduce_scatter_block(in, out, 1, MPI_INT, WRONG_AT(1, MPI_MAX, MPI_SUM), MPI_COMM_WORLD);
    return finish();
}
