/* A receive from a rank that has come to MPI_Finalize, which will send nothing any more, ends with an error; with a receive
   from any rank the others are waited for, and a rank that waits in MPI_Finalize waits for those that still run.
   ranks 3
   not on peers: they wait for ever */
#include "check.h"

int main(void) {
    int value = 0, rank;
    MPI_Request request;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    if (rank == 0) {
        FAILS(MPI_ERR_PROC_ABORTED, MPI_Recv(&value, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Irecv(&value, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, &request));
        FAILS(MPI_ERR_PROC_ABORTED, MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Send(&rank, 1, MPI_INT, 2, 7, MPI_COMM_WORLD));
    }
    if (rank == 2) OK(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return finish();
}
