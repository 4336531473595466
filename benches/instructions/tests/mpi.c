/* Sends the given number of 8-byte messages from this rank to itself, each received before the next, with a posted
   receive. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const long messages = argc > 1 ? atol(argv[1]) : 0;
    long from = 0, into = -1;
    MPI_Init(&argc, &argv);
    for (; from < messages; from++) {
        MPI_Request requests[2];
        MPI_Irecv(&into, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&from, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[1]);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        if (into != from)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Finalize();
    return 0;
}
