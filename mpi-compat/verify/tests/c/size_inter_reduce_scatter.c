/* Example 4 of the paper: each group reduces as much as it has ranks, and so scatters another amount than the other reduces.
   ranks 5
   says VERIFY MPI_REDUCE_SCATTER (INTERCOMM): scattersize=2 != reducesize=3 */
#include "check.h"

int main(void) {
    MPI_Comm half, both;
    char in[6] = {0}, out[6];
    int counts[3] = {1, 1, 1}, low;
    start();
    low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 2 : 0, 7, &both);
    handle(both);
    if (!IS_WRONG)
        for (int i = 0; i < 3; i++) counts[i] = low ? 3 : 2;
    MPI_Reduce_scatter(in, out, counts, MPI_BYTE, MPI_BOR, both);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return finish();
}
