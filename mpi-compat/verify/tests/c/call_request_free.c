/* The request of a collective call must be completed, not freed; one of a message may be freed.
   ranks 2
   says VERIFY MPI_REQUEST_FREE(0): request is of MPI_Ibarrier, a collective call, and must be completed */
#define HANDLED (rank == 0)
#include "check.h"

int main(void) {
    MPI_Request request, message;
    start();
    MPI_Isend(&rank, 0, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, &message);
    MPI_Request_free(&message);
    MPI_Recv(&rank, 0, MPI_INT, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    if (WRONG_AT(0, 1, 0)) MPI_Request_free(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return finish();
}
