/* Example 4 of the paper: each group reduces as many elements as it has ranks, so it scatters another amount than the
   other group reduces.
   ranks 5
   says VERIFY MPI_REDUCE_SCATTER (INTERCOMM): scattersize=2 != reducesize=3 */
#include "inter.h"

int main(void) {
    MPI_Comm both = join_halves();
    char in[6] = {0}, out[6];
    int counts[3] = {1, 1, 1};
    if (!IS_WRONG)
        for (int i = 0; i < 3; i++) counts[i] = rank < 2 ? 3 : 2;
    MPI_Reduce_scatter(in, out, counts, MPI_BYTE, MPI_BOR, both);
    MPI_Comm_free(&both);
    return finish();
}
