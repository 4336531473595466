/* Types are found by their class and size. */
#include "check.h"

int main(void) {
    MPI_Datatype type;
    start();
    int sizes[] = {1, 2, 4, 8};
    for (int i = 0; i < 4; i++) {
        int size = 0;
        OK(MPI_Type_match_size(MPI_TYPECLASS_INTEGER, sizes[i], &type));
        OK(MPI_Type_size(type, &size));
        CHECK(size == sizes[i]);
    }
    for (int size = 4; size <= 8; size *= 2) {
        int found = 0;
        OK(MPI_Type_match_size(MPI_TYPECLASS_REAL, size, &type));
        OK(MPI_Type_size(type, &found));
        CHECK(found == size);
        OK(MPI_Type_match_size(MPI_TYPECLASS_COMPLEX, 2 * size, &type));
        OK(MPI_Type_size(type, &found));
        CHECK(found == 2 * size);
    }
    FAILS(MPI_ERR_ARG, MPI_Type_match_size(MPI_TYPECLASS_INTEGER, 3, &type));
    FAILS(MPI_ERR_ARG, MPI_Type_match_size(12345, 4, &type));
    return finish();
}
