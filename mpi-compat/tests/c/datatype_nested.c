/* Nested types: a column of a matrix of structs, and resized bounds that survive further constructors. */
#include "check.h"

int main(void) {
    MPI_Datatype one, column, rows, two;
    MPI_Aint lb, extent;
    int size;
    start();
    struct cell { char c; double d; };
    OK(MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){offsetof(struct cell, c), offsetof(struct cell, d)},
        (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE}, &one));
    OK(MPI_Type_get_extent(one, &lb, &extent));
    CHECK(lb == 0 && extent == sizeof(struct cell));
    OK(MPI_Type_vector(4, 1, 3, one, &column));
    OK(MPI_Type_get_extent(column, &lb, &extent));
    CHECK(extent == 10 * (MPI_Aint)sizeof(struct cell));
    OK(MPI_Type_create_resized(column, 0, sizeof(struct cell), &rows));
    OK(MPI_Type_contiguous(3, rows, &two));
    OK(MPI_Type_size(two, &size));
    CHECK(size == 3 * 4 * 9);
    OK(MPI_Type_get_extent(two, &lb, &extent));
    CHECK(lb == 0 && extent == 3 * (MPI_Aint)sizeof(struct cell));
    /* The parts may be freed before the type that is made of them. */
    OK(MPI_Type_free(&one));
    OK(MPI_Type_free(&column));
    OK(MPI_Type_free(&rows));
    OK(MPI_Type_commit(&two));
    OK(MPI_Type_size(two, &size));
    CHECK(size == 108);
    OK(MPI_Type_free(&two));
    return finish();
}
