/* Sent sizes must equal received sizes.
   ranks 3
   says VERIFY MPI_BCAST(1): recvsize=8 > expected sendsize(0)=4
   says VERIFY MPI_GATHER(2): sendsize=8 > expected recvsize(0)=4
   says VERIFY MPI_GATHERV(1): sendsize=4 < expected recvsize(0)[1]=8
   says VERIFY MPI_SCATTER(2): recvsize=8 > expected sendsize(0)=4
   says VERIFY MPI_SCATTERV(1): recvsize=4 < expected sendsize(0)[1]=8
   says VERIFY MPI_ALLGATHER(1): sendsize=8 > expected recvsize(0)=4
   says VERIFY MPI_ALLGATHERV(1): sendsize=4 < expected recvsize(0)[1]=8
   says VERIFY MPI_ALLTOALL(0): sendsize=4 < expected recvsize(1)=8
   says VERIFY MPI_ALLTOALLW(0): sendsize[1]=8 > expected recvsize(1)[0]=4
   says VERIFY MPI_REDUCE(1): datasize 8 inconsistent with datasize 4 of 0
   says VERIFY MPI_ALLREDUCE(1): datasize 8 inconsistent with datasize 4 of 0
   says VERIFY MPI_REDUCE_SCATTER(1): scattersize {4,4,4} inconsistent with scattersize {4,8,4} of 0
   says VERIFY MPI_REDUCE_SCATTER_BLOCK(1): scattersize {8,8,8} inconsistent with scattersize {4,4,4} of 0
   says VERIFY MPI_SCAN(1): datasize 8 inconsistent with datasize 4 of 0
   says VERIFY MPI_EXSCAN(1): datasize 8 inconsistent with datasize 4 of 0 */
#define HANDLED 15
#include "check.h"

int main(void) {
    int in[12] = {0}, out[12] = {0}, counts[3] = {1, 1, 1}, places[3] = {0, 4, 8}, bytes[3] = {0, 16, 32}, other[3] = {1, 1, 1};
    MPI_Datatype types[3] = {MPI_INT, MPI_INT, MPI_INT};
    start();
    other[1] = WRONG_AT(0, 2, 1);
    MPI_Bcast(in, WRONG_AT(1, 2, 1), MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Gather(in, WRONG_AT(2, 2, 1), MPI_INT, out, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Gatherv(in, 1, MPI_INT, out, other, places, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Scatter(in, 1, MPI_INT, out, WRONG_AT(2, 2, 1), MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Scatterv(in, other, places, MPI_INT, out, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Allgather(in, WRONG_AT(1, 2, 1), MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgatherv(in, 1, MPI_INT, out, other, places, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoall(in, 1, MPI_INT, out, WRONG_AT(1, 2, 1), MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoallw(in, other, bytes, types, out, counts, bytes, types, MPI_COMM_WORLD);
    MPI_Reduce(in, out, WRONG_AT(1, 2, 1), MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Allreduce(in, out, WRONG_AT(1, 2, 1), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce_scatter(in, out, other, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce_scatter_block(in, out, WRONG_AT(1, 2, 1), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Scan(in, out, WRONG_AT(1, 2, 1), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Exscan(in, out, WRONG_AT(1, 2, 1), MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return finish();
}
