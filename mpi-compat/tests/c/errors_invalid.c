/* A value that is not an error code is an invalid argument. */
#include "check.h"

int main(void) {
    int class, length;
    char text[MPI_MAX_ERROR_STRING];
    start();
    CHECK(MPI_Comm_call_errhandler(MPI_COMM_NULL, MPI_ERR_RANK) != MPI_SUCCESS);
    FAILS(MPI_ERR_ARG, MPI_Error_class(MPI_ERR_RANK, NULL));
    FAILS(MPI_ERR_ARG, MPI_Error_string(MPI_ERR_RANK, NULL, &length));
    FAILS(MPI_ERR_ARG, MPI_Error_string(MPI_ERR_RANK, text, NULL));
    MPI_Errhandler none = MPI_ERRHANDLER_NULL;
    CHECK(MPI_Errhandler_free(&none) != MPI_SUCCESS);
    FAILS(MPI_ERR_ARG, MPI_Add_error_class(NULL));
    OK(MPI_Error_class(MPI_ERR_TAG, &class));
    CHECK(class == MPI_ERR_TAG);
    return finish();
}
