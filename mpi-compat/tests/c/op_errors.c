/* Errors: operators on types for which they are not defined, null operators, and freeing predefined ones. */
#include "check.h"

int main(void) {
    int a = 1, b = 2, n;
    float x = 1, y = 2;
    MPI_Op op = MPI_OP_NULL;
    MPI_Datatype type;
    start();
    FAILS(MPI_ERR_OP, MPI_Reduce_local(&a, &b, 1, MPI_INT, MPI_OP_NULL));
    FAILS(MPI_ERR_OP, MPI_Reduce_local(&x, &y, 1, MPI_FLOAT, MPI_BAND));
    FAILS(MPI_ERR_OP, MPI_Reduce_local(&a, &b, 1, MPI_INT, MPI_MINLOC));
    OK(MPI_Type_contiguous(1, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    FAILS(MPI_ERR_OP, MPI_Reduce_local(&a, &b, 1, type, MPI_SUM));
    OK(MPI_Type_free(&type));
    FAILS(MPI_ERR_OP, MPI_Op_free(&op));
    op = MPI_SUM;
    CHECK(MPI_Op_free(&op) != MPI_SUCCESS);
    FAILS(MPI_ERR_OP, MPI_Op_commutative(MPI_OP_NULL, &n));
    CHECK(b == 2 && y == 2);
    OK(MPI_Reduce_local(&a, &b, 0, MPI_INT, MPI_SUM));
    CHECK(b == 2);
    return finish();
}
