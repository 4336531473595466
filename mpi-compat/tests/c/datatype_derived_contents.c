/* The contents of a derived type made from derived types are usable handles, which the program frees. */
#include "check.h"

int main(void) {
    MPI_Datatype inner, outer, types[1];
    int ni, na, nd, combiner, integers[3], size;
    start();
    OK(MPI_Type_vector(2, 1, 3, MPI_INT, &inner));
    OK(MPI_Type_contiguous(4, inner, &outer));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_get_envelope(outer, &ni, &na, &nd, &combiner));
    CHECK(ni == 1 && na == 0 && nd == 1 && combiner == MPI_COMBINER_CONTIGUOUS);
    OK(MPI_Type_get_contents(outer, 1, 0, 1, integers, NULL, types));
    CHECK(integers[0] == 4);
    OK(MPI_Type_size(types[0], &size));
    CHECK(size == 8);
    OK(MPI_Type_get_envelope(types[0], &ni, &na, &nd, &combiner));
    CHECK(combiner == MPI_COMBINER_VECTOR && ni == 3);
    OK(MPI_Type_free(&types[0]));
    CHECK(MPI_Type_get_contents(outer, 0, 0, 1, integers, NULL, types) != MPI_SUCCESS);
    CHECK(MPI_Type_get_contents(MPI_INT, 0, 0, 0, integers, NULL, types) != MPI_SUCCESS);
    OK(MPI_Type_free(&outer));
    return finish();
}
