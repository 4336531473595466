/* All ranks give the same predefined operator.
   ranks 3
   says VERIFY MPI_REDUCE(1): op MPI_MAX inconsistent with op MPI_SUM of 0
   says VERIFY MPI_ALLREDUCE(1): op MPI_MAX inconsistent with op MPI_SUM of 0
   says VERIFY MPI_REDUCE_SCATTER(1): op MPI_MAX inconsistent with op MPI_SUM of 0
   says VERIFY MPI_REDUCE_SCATTER_BLOCK(1): op MPI_MAX inconsistent with op MPI_SUM of 0
   says VERIFY MPI_SCAN(1): op MPI_MAX inconsistent with op MPI_SUM of 0
   says VERIFY MPI_EXSCAN(1): op MPI_MAX inconsistent with op MPI_SUM of 0 */
#define HANDLED 6
#include "check.h"

int main(void) {
    int in[3] = {0}, out[3] = {0}, counts[3] = {1, 1, 1};
    MPI_Op op;
    start();
    op = WRONG_AT(1, MPI_MAX, MPI_SUM);
    MPI_Reduce(in, out, 1, MPI_INT, op, 0, MPI_COMM_WORLD);
    MPI_Allreduce(in, out, 1, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Reduce_scatter(in, out, counts, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(in, out, 1, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Scan(in, out, 1, MPI_INT, op, MPI_COMM_WORLD);
    MPI_Exscan(in, out, 1, MPI_INT, op, MPI_COMM_WORLD);
    return finish();
}
