/* An intracommunicator has no remote group.
   not on peers: MPICH ends */
#include "check.h"

int main(void) {
    MPI_Group group;
    int n;
    start();
    FAILS(MPI_ERR_COMM, MPI_Comm_remote_size(MPI_COMM_WORLD, &n));
    FAILS(MPI_ERR_COMM, MPI_Comm_remote_group(MPI_COMM_WORLD, &group));
    return finish();
}
