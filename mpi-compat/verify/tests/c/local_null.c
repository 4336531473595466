/* The address of data must not be NULL, by the buffer or by the type.
   ranks 2
   says VERIFY MPI_BCAST(1): buffer has the address NULL */
#include "check.h"

int main(void) {
    int data[2] = {0};
    MPI_Datatype at;
    MPI_Aint places[2];
    start();
    MPI_Get_address(&data[0], &places[0]);
    MPI_Get_address(&data[1], &places[1]);
    if (WRONG_AT(1, 1, 0)) places[1] = 0;
    MPI_Type_create_hindexed(2, (int[]){1, 1}, places, MPI_INT, &at);
    MPI_Type_commit(&at);
    MPI_Bcast(MPI_BOTTOM, 1, at, 0, MPI_COMM_WORLD);
    MPI_Bcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Type_free(&at);
    return finish();
}
