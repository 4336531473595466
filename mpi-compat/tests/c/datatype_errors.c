/* Errors: negative counts, null types, arrays out of bounds. */
#include "check.h"

int main(void) {
    MPI_Datatype type, none = MPI_DATATYPE_NULL;
    start();
    FAILS(MPI_ERR_COUNT, MPI_Type_contiguous(-1, MPI_INT, &type));
    FAILS(MPI_ERR_TYPE, MPI_Type_contiguous(1, MPI_DATATYPE_NULL, &type));
    FAILS(MPI_ERR_COUNT, MPI_Type_vector(-1, 1, 1, MPI_INT, &type));
    CHECK(MPI_Type_vector(1, -1, 1, MPI_INT, &type) != MPI_SUCCESS);
    CHECK(MPI_Type_indexed(1, (int[]){-1}, (int[]){0}, MPI_INT, &type) != MPI_SUCCESS);
    FAILS(MPI_ERR_TYPE, MPI_Type_create_struct(1, (int[]){1}, (MPI_Aint[]){0}, (MPI_Datatype[]){MPI_DATATYPE_NULL}, &type));
    FAILS(MPI_ERR_TYPE, MPI_Type_commit(&none));
    FAILS(MPI_ERR_TYPE, MPI_Type_free(&none));
    FAILS(MPI_ERR_ARG, MPI_Type_create_subarray(1, (int[]){4}, (int[]){3}, (int[]){0}, 99, MPI_INT, &type));
    FAILS(MPI_ERR_ARG, MPI_Type_contiguous(1, MPI_INT, NULL));
    FAILS(MPI_ERR_ARG, MPI_Type_size(MPI_INT, NULL));
    return finish();
}
