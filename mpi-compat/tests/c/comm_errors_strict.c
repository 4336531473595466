/* Errors: the remote group of an intracommunicator; colors, leaders and tags out of range.
   ranks 1 2
   not on peers: MPICH ends */
#include "check.h"

int main(void) {
    MPI_Group group;
    MPI_Comm comm;
    int n;
    start();
    FAILS(MPI_ERR_COMM, MPI_Comm_remote_size(MPI_COMM_WORLD, &n));
    FAILS(MPI_ERR_COMM, MPI_Comm_remote_group(MPI_COMM_WORLD, &group));
    FAILS(MPI_ERR_ARG, MPI_Comm_split(MPI_COMM_WORLD, -1, 0, &comm));
    FAILS(MPI_ERR_COMM, MPI_Intercomm_merge(MPI_COMM_WORLD, 0, &comm));
    FAILS(MPI_ERR_RANK, MPI_Intercomm_create(MPI_COMM_SELF, 1, MPI_COMM_WORLD, 0, 1, &comm));
    FAILS(MPI_ERR_RANK, MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 99, 1, &comm));
    FAILS(MPI_ERR_TAG, MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 0, -1, &comm));
    FAILS(MPI_ERR_COMM, MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_NULL, 0, 1, &comm));
    MPI_Comm_rank(MPI_COMM_WORLD, &n);
    FAILS(MPI_ERR_RANK, MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, n, 1, &comm));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return finish();
}
