/* Addresses are absolute, and can be added and subtracted. */
#include "check.h"

int main(void) {
    int array[10];
    MPI_Aint first, fourth, none = -1;
    start();
    OK(MPI_Get_address(&array[0], &first));
    OK(MPI_Get_address(&array[4], &fourth));
    CHECK(MPI_Aint_diff(fourth, first) == 4 * (MPI_Aint)sizeof(int));
    CHECK(MPI_Aint_add(first, 4 * sizeof(int)) == fourth);
    CHECK((void *)first == (void *)array);
    OK(MPI_Get_address(MPI_BOTTOM, &none));
    CHECK(none == 0);
    FAILS(MPI_ERR_ARG, MPI_Get_address(array, NULL));
    return finish();
}
