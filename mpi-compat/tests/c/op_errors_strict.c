/* Negative counts and null types.
   not on peers: MPICH does not look at these */
#include "check.h"

int main(void) {
    int a = 1, b = 2;
    start();
    FAILS(MPI_ERR_COUNT, MPI_Reduce_local(&a, &b, -1, MPI_INT, MPI_SUM));
    FAILS(MPI_ERR_TYPE, MPI_Reduce_local(&a, &b, 1, MPI_DATATYPE_NULL, MPI_SUM));
    return finish();
}
