/* Example 3 of the paper: send and receive counts are both indexed by the peer.
   ranks 3
   says VERIFY MPI_ALLTOALLV(0): sendsize[1]=4 > expected recvsize(1)[0]=0
   says VERIFY MPI_ALLTOALLV(2): sendsize[0]=0 < expected recvsize(0)[2]=8 */
#include "check.h"

int main(void) {
    int in[9] = {0}, out[9], sends[3], recvs[3], places[3];
    start();
    for (int i = 0; i < 3; i++) {
        sends[i] = i;
        recvs[i] = IS_WRONG ? i : rank;
        places[i] = 3 * i;
    }
    MPI_Alltoallv(in, sends, places, MPI_INT, out, recvs, places, MPI_INT, MPI_COMM_WORLD);
    return finish();
}
