/* A call that fails to make a communicator gives MPI_COMM_NULL.
   ranks 1 2
   not on peers: the standard leaves it open */
#include "check.h"

#define NULL_AFTER(class, call) \
    do { \
        memset(&comm, 0x5a, sizeof(comm)); \
        FAILS(class, call); \
        CHECK(comm == MPI_COMM_NULL); \
    } while (0)

int main(void) {
    MPI_Comm comm;
    int n, dims[2], periods[2] = {0, 0}, index[1] = {3}, edges[1] = {9};
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    dims[0] = dims[1] = n + 1;
    NULL_AFTER(MPI_ERR_DIMS, MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &comm));
    NULL_AFTER(MPI_ERR_TOPOLOGY, MPI_Cart_sub(MPI_COMM_WORLD, periods, &comm));
    NULL_AFTER(MPI_ERR_ARG, MPI_Comm_split(MPI_COMM_WORLD, -5, 0, &comm));
    NULL_AFTER(MPI_ERR_ARG, MPI_Comm_split_type(MPI_COMM_WORLD, 12345, 0, MPI_INFO_NULL, &comm));
    NULL_AFTER(MPI_ERR_GROUP, MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_NULL, &comm));
    NULL_AFTER(MPI_ERR_COMM, MPI_Comm_dup(MPI_COMM_NULL, &comm));
    NULL_AFTER(MPI_ERR_COMM, MPI_Intercomm_merge(MPI_COMM_WORLD, 0, &comm));
    memset(&comm, 0x5a, sizeof(comm));
    CHECK(MPI_Graph_create(MPI_COMM_WORLD, 1, index, edges, 0, &comm) != MPI_SUCCESS);
    CHECK(comm == MPI_COMM_NULL);
    return finish();
}
