/* Communicators that are made and freed leak no resources.
   ranks 3 */
#include "check.h"

int main(void) {
    MPI_Comm comm, alive[200];
    int rank, one = 1, sum;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < rounds(3000); i++) {
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        if (i % 10 == 0) OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
        OK(MPI_Comm_free(&comm));
    }
    for (int i = 0; i < COUNT(alive); i++) OK(MPI_Comm_split(MPI_COMM_WORLD, rank / 2, 0, &alive[i]));
    for (int i = 0; i < COUNT(alive); i++) {
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, alive[i]));
        CHECK(sum == (rank < 2 ? 2 : 1));
        OK(MPI_Comm_free(&alive[i]));
    }
    return finish();
}
