/* Ranks with the same color are together, ordered by key and then by rank; ranks with MPI_UNDEFINED get no
   communicator.
   ranks 1 2 3 5 */
#include "check.h"

int main(void) {
    MPI_Comm half, nested, none;
    int rank, size, n, me, sum;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half));
    MPI_Comm_size(half, &n);
    MPI_Comm_rank(half, &me);
    CHECK(n == (size + 1 - rank % 2) / 2);
    CHECK(me == n - 1 - rank / 2);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half));
    CHECK(sum == (rank % 2 ? n * n : n * (n - 1)));
    int *all = malloc(n * sizeof(int));
    OK(MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, half));
    for (int i = 0; i < n; i++) CHECK(all[i] == 2 * (n - 1 - i) + rank % 2);
    free(all);
    /* Equal keys keep the order, also that of a smaller communicator. */
    OK(MPI_Comm_split(half, 7, 3, &nested));
    MPI_Comm_rank(nested, &n);
    CHECK(n == me);
    OK(MPI_Comm_free(&half));
    OK(MPI_Barrier(nested));
    OK(MPI_Comm_free(&nested));
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 1, 0, &none));
    CHECK((none == MPI_COMM_NULL) == (rank == 0));
    if (rank > 0) {
        MPI_Comm_size(none, &n);
        CHECK(n == size - 1);
        OK(MPI_Comm_free(&none));
    }
    FAILS(MPI_ERR_COMM, MPI_Comm_split(MPI_COMM_NULL, 0, 0, &none));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return finish();
}
