/* Every function has a name that a tool may leave to the library, and one that it may take. */
#include "check.h"

static int seen;

int MPI_Comm_rank(MPI_Comm comm, int *rank) {
    seen++;
    return PMPI_Comm_rank(comm, rank);
}

int main(void) {
    int rank = -1, other = -2;
    start();
    OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    OK(PMPI_Comm_rank(MPI_COMM_WORLD, &other));
    CHECK(seen == 1 && rank == other && rank >= 0);
    OK(MPI_Pcontrol(1));
    return finish();
}
