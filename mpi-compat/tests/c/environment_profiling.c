/* Every function has an MPI_ name, which a tool may define itself, and a PMPI_ name, by which the tool calls the
   library. */
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
