/* Sent sizes are received sizes, between neighbours.
   ranks 4
   says VERIFY MPI_NEIGHBOR_ALLTOALLV(0): sendsize[1]=8 > expected recvsize(1)[0]=4 */
#include "check.h"

int main(void) {
    int in[12] = {0}, out[12] = {0}, counts[2] = {1, 1}, places[2] = {0, 4}, other[2] = {1, 1}, four = 4, yes = 1;
    MPI_Aint far[2] = {0, 16};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    MPI_Comm ring;
    (void)counts, (void)places, (void)far, (void)types, (void)other;
    start();
    MPI_Cart_create(MPI_COMM_WORLD, 1, &four, &yes, 0, &ring);
    handle(ring);
    other[1] = WRONG_AT(0, 2, 1);
    MPI_Neighbor_alltoallv(in, other, places, MPI_INT, out, counts, places, MPI_INT, ring);
    MPI_Comm_free(&ring);
    return finish();
}
