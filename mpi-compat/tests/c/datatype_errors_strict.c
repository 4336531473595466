/* Errors: subarrays that exceed their array, and arrays without dimensions.
   not on peers: MPICH does not look at these */
#include "check.h"

int main(void) {
    MPI_Datatype type;
    start();
    FAILS(MPI_ERR_ARG, MPI_Type_create_subarray(1, (int[]){4}, (int[]){3}, (int[]){2}, MPI_ORDER_C, MPI_INT, &type));
    CHECK(MPI_Type_create_subarray(0, NULL, NULL, NULL, MPI_ORDER_C, MPI_INT, &type) != MPI_SUCCESS);
    return finish();
}
