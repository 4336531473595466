/* Sent sizes must equal received sizes, between groups.
   ranks 4
   says VERIFY MPI_GATHER(1): sendsize=8 > expected recvsize(0 of the other group)=4
   says VERIFY MPI_ALLGATHER(1): sendsize=8 > expected recvsize(0 of the other group)=4
   says VERIFY MPI_REDUCE(1): datasize 8 inconsistent with datasize 4 of 0
   says VERIFY MPI_ALLREDUCE (INTERCOMM): datasize=4 != reducesize=8 */
#define HANDLED 4
#include "inter.h"

int main(void) {
    int in[8] = {0}, out[8] = {0}, root;
    MPI_Comm both = join_halves();
    root = rank == 0 ? MPI_ROOT : rank == 1 ? MPI_PROC_NULL : 0;
    MPI_Gather(in, WRONG_AT(3, 2, 1), MPI_INT, out, 1, MPI_INT, root, both);
    MPI_Allgather(in, WRONG_AT(3, 2, 1), MPI_INT, out, 1, MPI_INT, both);
    MPI_Reduce(in, out, WRONG_AT(3, 2, 1), MPI_INT, MPI_SUM, root, both);
    MPI_Allreduce(in, out, IS_WRONG && rank < 2 ? 2 : 1, MPI_INT, MPI_SUM, both);
    MPI_Comm_free(&both);
    return finish();
}
