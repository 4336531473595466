/* Large counts: the checks are the same.
   ranks 2
   says VERIFY MPI_ALLGATHER(0): sendsize=8 > expected recvsize(0)=4 */
#include "check.h"

int main(void) {
    int in[2] = {0}, out[4];
    start();
    if (rank == 0) MPI_Allgather_c(in, IS_WRONG ? 2 : 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    else MPI_Allgather(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    return finish();
}
