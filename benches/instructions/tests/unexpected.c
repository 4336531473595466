/* Sends the given number of 8-byte messages from this rank to itself, each of which has arrived before its receive. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const long messages = argc > 1 ? atol(argv[1]) : 0;
    long from = 0, into = -1;
    MPI_Init(&argc, &argv);
    for (; from < messages; from++) {
        MPI_Send(&from, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(&into, 8, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (into != from)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Finalize();
    return 0;
}
