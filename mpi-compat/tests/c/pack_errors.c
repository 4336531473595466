/* Errors: buffers that are too small, types that are not committed, other representations. */
#include "check.h"

int main(void) {
    int data[4] = {0}, position = 0, size;
    char buffer[8];
    MPI_Datatype type;
    start();
    FAILS(MPI_ERR_COUNT, MPI_Pack(data, -1, MPI_INT, buffer, sizeof buffer, &position, MPI_COMM_SELF));
    FAILS(MPI_ERR_TYPE, MPI_Pack(data, 1, MPI_DATATYPE_NULL, buffer, sizeof buffer, &position, MPI_COMM_SELF));
    FAILS(MPI_ERR_COMM, MPI_Pack(data, 1, MPI_INT, buffer, sizeof buffer, &position, MPI_COMM_NULL));
    FAILS(MPI_ERR_COMM, MPI_Pack_size(1, MPI_INT, MPI_COMM_NULL, &size));
    OK(MPI_Type_contiguous(1, MPI_INT, &type));
    FAILS(MPI_ERR_TYPE, MPI_Pack(data, 1, type, buffer, sizeof buffer, &position, MPI_COMM_SELF));
    OK(MPI_Type_free(&type));
    return finish();
}
