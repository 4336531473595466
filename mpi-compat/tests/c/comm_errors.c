/* Errors: null communicators, and freeing predefined ones. */
#include "check.h"

int main(void) {
    MPI_Comm comm = MPI_COMM_NULL;
    int n;
    start();
    FAILS(MPI_ERR_COMM, MPI_Comm_size(MPI_COMM_NULL, &n));
    FAILS(MPI_ERR_COMM, MPI_Comm_free(&comm));
    comm = MPI_COMM_WORLD;
    CHECK(MPI_Comm_free(&comm) != MPI_SUCCESS);
    CHECK(comm == MPI_COMM_WORLD);
    FAILS(MPI_ERR_COMM, MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_NULL, &n));
    FAILS(MPI_ERR_ARG, MPI_Comm_size(MPI_COMM_WORLD, NULL));
    FAILS(MPI_ERR_ARG, MPI_Comm_get_name(MPI_COMM_WORLD, NULL, &n));
    return finish();
}
