/* Requests of collectives cannot be cancelled, and cannot be freed while in progress.
   ranks 2
   not on peers: MPICH frees them */
#include "check.h"

int main(void) {
    MPI_Request request, again;
    int flag = 0, rank;
    start();
    OK(MPI_Ibarrier(MPI_COMM_SELF, &request));
    FAILS(MPI_ERR_REQUEST, MPI_Cancel(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    /* The other rank has not called the second one before it has been notified of this failure. */
    rank = rank_of(MPI_COMM_WORLD);
    if (rank == 0) {
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
        FAILS(MPI_ERR_REQUEST, MPI_Request_free(&request));
    }
    OK(MPI_Sendrecv_replace(&flag, 1, MPI_INT, 1 - rank, 0, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    if (rank == 1) OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    FAILS(MPI_ERR_REQUEST, MPI_Cancel(&request));
    OK(MPI_Start(&request));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&request));
    for (flag = 0; !flag;) OK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    again = request;
    OK(MPI_Request_free(&request));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&again));
    FAILS(MPI_ERR_ARG, MPI_Ibarrier(MPI_COMM_WORLD, NULL));
    FAILS(MPI_ERR_COUNT, MPI_Ibcast(&flag, -1, MPI_INT, 0, MPI_COMM_WORLD, &request));
    FAILS(MPI_ERR_INFO, MPI_Barrier_init(MPI_COMM_WORLD, (MPI_Info)1, &request));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return finish();
}
