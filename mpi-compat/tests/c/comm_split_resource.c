/* Splits guided by a resource: a hardware resource or a process set.
   ranks 1 2 3
   not on peers: process sets are not promised */
#include "check.h"

static int rank, size;

/* The size of the communicator that a split makes; 0 if it makes none. Its ranks are in the order of the keys. */
static int members(int type, MPI_Info info) {
    MPI_Comm comm;
    int n, me;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, type, -rank, info, &comm));
    if (comm == MPI_COMM_NULL) return 0;
    OK(MPI_Comm_size(comm, &n));
    OK(MPI_Comm_rank(comm, &me));
    if (n == size) CHECK(me == size - 1 - rank);
    OK(MPI_Comm_free(&comm));
    return n;
}

int main(void) {
    MPI_Info info;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(members(MPI_COMM_TYPE_RESOURCE_GUIDED, MPI_INFO_NULL) == 0);
    OK(MPI_Info_create(&info));
    CHECK(members(MPI_COMM_TYPE_RESOURCE_GUIDED, info) == 0);
    OK(MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory"));
    CHECK(members(MPI_COMM_TYPE_RESOURCE_GUIDED, info) == members(MPI_COMM_TYPE_SHARED, MPI_INFO_NULL));
    OK(MPI_Info_delete(info, "mpi_hw_resource_type"));
    OK(MPI_Info_set(info, "mpi_pset_name", "mpi://WORLD"));
    CHECK(members(MPI_COMM_TYPE_RESOURCE_GUIDED, info) == size);
    CHECK(members(MPI_COMM_TYPE_HW_GUIDED, info) == 0);
    OK(MPI_Info_set(info, "mpi_pset_name", "mpi://self"));
    CHECK(members(MPI_COMM_TYPE_RESOURCE_GUIDED, info) == 1);
    OK(MPI_Info_set(info, "mpi_pset_name", "mpi://elsewhere"));
    CHECK(members(MPI_COMM_TYPE_RESOURCE_GUIDED, info) == 0);
    OK(MPI_Info_free(&info));
    return finish();
}
