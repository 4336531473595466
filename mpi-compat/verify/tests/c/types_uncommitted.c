/* Types must be committed before communication; a copy of a committed type is committed.
   ranks 2
   says VERIFY MPI_BCAST(1): datatype is not committed */
#include "check.h"

int main(void) {
    int data[4] = {0};
    MPI_Datatype pair, copy, again;
    start();
    MPI_Type_contiguous(2, MPI_INT, &pair);
    if (!WRONG_AT(1, 1, 0)) MPI_Type_commit(&pair);
    MPI_Bcast(data, 1, pair, 0, MPI_COMM_WORLD);
    MPI_Type_commit(&pair);
    MPI_Type_dup(pair, &copy);
    MPI_Type_free(&pair);
    MPI_Bcast(data, 1, copy, 0, MPI_COMM_WORLD);
    MPI_Type_create_f90_real(6, 30, &again);
    MPI_Bcast(data, 1, again, 0, MPI_COMM_WORLD);
    MPI_Type_free(&copy);
    return finish();
}
