/* The same size with other types.
   ranks 2
   says VERIFY MPI_BCAST(1): recvtype {2 MPI_FLOAT} inconsistent with sendtype {2 MPI_INT} of 0 */
#include "check.h"

int main(void) {
    double in[64] = {0};
    MPI_Datatype one, other;
    start();
    MPI_Type_contiguous(2, MPI_INT, &one);
    MPI_Type_vector(2, 1, 3, WRONG_AT(1, MPI_FLOAT, MPI_INT), &other);
    MPI_Type_commit(&one);
    MPI_Type_commit(&other);
    MPI_Bcast(in, 1, rank == 0 ? one : other, 0, MPI_COMM_WORLD);
    MPI_Type_free(&one);
    MPI_Type_free(&other);
    return finish();
}
