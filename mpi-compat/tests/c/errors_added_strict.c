/* Only classes and codes that the program has added can get another string.
   not on peers: MPICH changes the strings of its own */
#include "check.h"

int main(void) {
    start();
    CHECK(MPI_Add_error_string(MPI_ERR_RANK, "not mine") != MPI_SUCCESS);
    return finish();
}
