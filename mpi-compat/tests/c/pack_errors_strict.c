/* Buffers that are too small are errors.
   not on peers: MPICH packs what fits */
#include "check.h"

int main(void) {
    int data[4] = {0}, position = 0;
    char buffer[8];
    start();
    CHECK(MPI_Pack(data, 4, MPI_INT, buffer, sizeof buffer, &position, MPI_COMM_SELF) != MPI_SUCCESS);
    CHECK(position == 0);
    CHECK(MPI_Unpack(buffer, 4, &position, data, 2, MPI_INT, MPI_COMM_SELF) != MPI_SUCCESS);
    return finish();
}
