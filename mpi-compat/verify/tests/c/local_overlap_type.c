/* Elements that are received must not overlap; elements that are sent may.
   ranks 2
   says VERIFY MPI_BCAST(1): buffer: the datatype has overlapping elements in a receive buffer */
#include "check.h"

int main(void) {
    int data[8] = {0};
    MPI_Datatype twice;
    start();
    MPI_Type_vector(2, 2, 1, MPI_INT, &twice);
    MPI_Type_commit(&twice);
    if (IS_WRONG) MPI_Bcast(data, 1, twice, 0, MPI_COMM_WORLD);
    else MPI_Bcast(data, rank ? 4 : 1, rank ? MPI_INT : twice, 0, MPI_COMM_WORLD);
    MPI_Type_free(&twice);
    return finish();
}
