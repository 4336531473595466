/* Sent sizes must equal received sizes, between neighbours.
   ranks 4
   says VERIFY MPI_NEIGHBOR_ALLGATHER(0): sendsize[1]=8 > expected recvsize(1)[0]=4
   says VERIFY MPI_NEIGHBOR_ALLGATHERV(0): sendsize[1]=8 > expected recvsize(1)[0]=4
   says VERIFY MPI_NEIGHBOR_ALLTOALL(0): sendsize[1]=4 < expected recvsize(1)[0]=8
   says VERIFY MPI_NEIGHBOR_ALLTOALLV(0): sendsize[1]=8 > expected recvsize(1)[0]=4
   says VERIFY MPI_NEIGHBOR_ALLTOALLW(0): sendsize[1]=8 > expected recvsize(1)[0]=4 */
#define HANDLED 5
#include "check.h"

int main(void) {
    int in[12] = {0}, out[12] = {0}, counts[2] = {1, 1}, places[2] = {0, 4}, other[2] = {1, 1}, four = 4, yes = 1;
    MPI_Aint far[2] = {0, 16};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    MPI_Comm ring;
    start();
    MPI_Cart_create(MPI_COMM_WORLD, 1, &four, &yes, 0, &ring);
    handle(ring);
    other[1] = WRONG_AT(0, 2, 1);
    MPI_Neighbor_allgather(in, WRONG_AT(0, 2, 1), MPI_INT, out, 1, MPI_INT, ring);
    MPI_Neighbor_allgatherv(in, WRONG_AT(0, 2, 1), MPI_INT, out, counts, places, MPI_INT, ring);
    MPI_Neighbor_alltoall(in, 1, MPI_INT, out, WRONG_AT(1, 2, 1), MPI_INT, ring);
    MPI_Neighbor_alltoallv(in, other, places, MPI_INT, out, counts, places, MPI_INT, ring);
    MPI_Neighbor_alltoallw(in, other, far, types, out, counts, far, types, ring);
    MPI_Comm_free(&ring);
    return finish();
}
