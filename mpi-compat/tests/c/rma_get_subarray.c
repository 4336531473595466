/* Get of a block of a matrix at the target.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int got[2][3], *memory = begin(5 * 6), sizes[2] = {5, 6}, parts[2] = {2, 3}, first[2] = {2, 1};
    MPI_Datatype block;
    OK(MPI_Type_create_subarray(2, sizes, parts, first, MPI_ORDER_C, MPI_INT, &block));
    OK(MPI_Type_commit(&block));
    for (int i = 0; i < 30; i++) memory[i] = 100 * me + i;
    FENCE();
    OK(MPI_Get(got, 6, MPI_INT, right(), 0, 1, block, win));
    FENCE();
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++) CHECK(got[i][j] == 100 * right() + 6 * (i + 2) + j + 1);
    OK(MPI_Type_free(&block));
    return done();
}
