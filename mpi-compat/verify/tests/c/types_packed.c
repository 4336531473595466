/* Packed data matches any type, and a pair type has the signature of its two parts.
   ranks 2
   says VERIFY MPI_BCAST(1): recvtype {2 elements, MPI_DOUBLE first} inconsistent with sendtype {2 elements, MPI_INT first} of 0 */
#include "check.h"

int main(void) {
    char data[64] = {0};
    MPI_Datatype pair;
    MPI_Aint places[2] = {0, 8};
    start();
    MPI_Bcast(data, rank == 0 ? 8 : 2, rank == 0 ? MPI_PACKED : MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Type_create_struct(2, (int[]){1, 1}, places,
        IS_WRONG ? (MPI_Datatype[]){MPI_INT, MPI_DOUBLE} : (MPI_Datatype[]){MPI_DOUBLE, MPI_INT}, &pair);
    MPI_Type_commit(&pair);
    MPI_Bcast(data, 1, rank == 0 ? pair : MPI_DOUBLE_INT, 0, MPI_COMM_WORLD);
    MPI_Type_free(&pair);
    return finish();
}
