/* Erroneous arguments, the same at all ranks, are errors, and the next call works.
   ranks 1 2 */
#include "check.h"

int main(void) {
    int rank, size, a[4] = {1, 2, 3, 4}, b[8], sum = 0;
    MPI_Datatype type;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    FAILS(MPI_ERR_COMM, MPI_Barrier(MPI_COMM_NULL));
    FAILS(MPI_ERR_COMM, MPI_Bcast(a, 1, MPI_INT, 0, MPI_COMM_NULL));
    FAILS(MPI_ERR_COUNT, MPI_Bcast(a, -1, MPI_INT, 0, MPI_COMM_WORLD));
    FAILS(MPI_ERR_TYPE, MPI_Bcast(a, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD));
    FAILS(MPI_ERR_ROOT, MPI_Bcast(a, 1, MPI_INT, -1, MPI_COMM_WORLD));
    FAILS(MPI_ERR_ROOT, MPI_Bcast(a, 1, MPI_INT, size, MPI_COMM_WORLD));
    FAILS(MPI_ERR_ROOT, MPI_Gather(a, 1, MPI_INT, b, 1, MPI_INT, MPI_ROOT, MPI_COMM_WORLD));
    FAILS(MPI_ERR_BUFFER, MPI_Bcast(NULL, 1, MPI_INT, 0, MPI_COMM_WORLD));
    FAILS(MPI_ERR_BUFFER, MPI_Allreduce(a, a, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    FAILS(MPI_ERR_OP, MPI_Allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD));
    FAILS(MPI_ERR_OP, MPI_Allreduce(a, b, 1, MPI_DOUBLE, MPI_BAND, MPI_COMM_WORLD));
    FAILS(MPI_ERR_OP, MPI_Reduce(a, b, 1, MPI_INT, MPI_MINLOC, 0, MPI_COMM_WORLD));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    FAILS(MPI_ERR_TYPE, MPI_Allgather(a, 1, type, b, 1, type, MPI_COMM_WORLD));
    OK(MPI_Type_commit(&type));
    FAILS(MPI_ERR_OP, MPI_Allreduce(a, b, 1, type, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Type_free(&type));
    OK(MPI_Allreduce(&a[2], &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == 3 * size);
    return finish();
}
