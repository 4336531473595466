/* Types by precision are predefined, and cannot be freed.
   not on peers: MPICH frees them */
#include "check.h"

int main(void) {
    MPI_Datatype integer;
    start();
    OK(MPI_Type_create_f90_integer(9, &integer));
    CHECK(MPI_Type_free(&integer) != MPI_SUCCESS);
    return finish();
}
