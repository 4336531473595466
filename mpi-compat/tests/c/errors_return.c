/* With MPI_ERRORS_RETURN a call returns a code whose class identifies the error, and the program goes on. */
#include "check.h"

int main(void) {
    int rank = -1, size = 0, length = 0;
    char text[MPI_MAX_ERROR_STRING];
    start();
    int code = MPI_Comm_rank(MPI_COMM_NULL, &rank);
    CHECK(class_of(code) == MPI_ERR_COMM);
    OK(MPI_Error_string(code, text, &length));
    CHECK(length > 0);
    FAILS(MPI_ERR_TYPE, MPI_Type_size(MPI_DATATYPE_NULL, &size));
    FAILS(MPI_ERR_GROUP, MPI_Group_size(MPI_GROUP_NULL, &size));
    FAILS(MPI_ERR_ARG, MPI_Comm_rank(MPI_COMM_WORLD, NULL));
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    CHECK(rank >= 0);
    return finish();
}
