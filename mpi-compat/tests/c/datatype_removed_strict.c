/* Errors of functions that MPI-3.0 removed name the function that the program called.
   not on peers: MPICH has other texts */
#include "removed.h"

int main(void) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Aint extent;
    MPI_Datatype type;
    start();
    MPI_Error_string(MPI_Type_hvector(1, -1, 4, MPI_INT, &type), text, &length);
    CHECK(strstr(text, "MPI_Type_hvector") && strstr(text, "blocklength is -1"));
    FAILS(MPI_ERR_TYPE, MPI_Type_extent(MPI_DATATYPE_NULL, &extent));
    FAILS(MPI_ERR_ERRHANDLER, MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRHANDLER_NULL));
    FAILS(MPI_ERR_ARG, MPI_Errhandler_create(NULL, &(MPI_Errhandler){0}));
    FAILS(MPI_ERR_ARG, MPI_Type_ub(MPI_INT, NULL));
    return finish();
}
