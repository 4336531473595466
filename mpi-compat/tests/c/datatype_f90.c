/* Types by precision: the same handle for the same arguments, which are its contents; it is never freed. */
#include "check.h"

int main(void) {
    MPI_Datatype real, again, complex, integer;
    int size, ni, na, nd, combiner, arguments[2];
    start();
    OK(MPI_Type_create_f90_real(15, 307, &real));
    OK(MPI_Type_size(real, &size));
    CHECK(size == 8);
    OK(MPI_Type_create_f90_real(15, 307, &again));
    CHECK(again == real);
    OK(MPI_Type_get_envelope(real, &ni, &na, &nd, &combiner));
    CHECK(ni == 2 && na == 0 && nd == 0 && combiner == MPI_COMBINER_F90_REAL);
    OK(MPI_Type_get_contents(real, 2, 0, 0, arguments, NULL, NULL));
    CHECK(arguments[0] == 15 && arguments[1] == 307);
    OK(MPI_Type_create_f90_real(6, MPI_UNDEFINED, &real));
    OK(MPI_Type_size(real, &size));
    CHECK(size == 4);
    OK(MPI_Type_create_f90_complex(6, 37, &complex));
    OK(MPI_Type_size(complex, &size));
    CHECK(size == 8);
    int digits[] = {2, 4, 9, 18}, sizes[] = {1, 2, 4, 8};
    for (int i = 0; i < 4; i++) {
        OK(MPI_Type_create_f90_integer(digits[i], &integer));
        OK(MPI_Type_size(integer, &size));
        CHECK(size == sizes[i]);
    }
    CHECK(MPI_Type_create_f90_real(1000, 100000, &real) != MPI_SUCCESS);
    CHECK(MPI_Type_create_f90_integer(1000, &integer) != MPI_SUCCESS);
    return finish();
}
