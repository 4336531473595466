/* Sent sizes are received sizes, between groups.
   ranks 4
   says VERIFY MPI_ALLREDUCE (INTERCOMM): datasize=4 != reducesize=8 */
#include "check.h"

int main(void) {
    MPI_Comm half, both;
    int in[8] = {0}, out[8] = {0}, low, root;
    start();
    low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 2 : 0, 7, &both);
    handle(both);
    root = low ? (rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
    (void)root;
    MPI_Allreduce(in, out, IS_WRONG && low ? 2 : 1, MPI_INT, MPI_SUM, both);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return finish();
}
