/* Reductions of intercommunicators whose groups give different counts fail where the shorter vector arrives.
   ranks 2 3
   not on peers: an erroneous program */
#include "check.h"

int main(void) {
    MPI_Comm half, inter;
    int rank, size, mine[4] = {1, 2, 3, 4}, sum[4] = {0};
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int first = rank == 0;
    OK(MPI_Comm_split(MPI_COMM_WORLD, first, 0, &half));
    OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, first ? 1 : 0, 0, &inter));
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    int code = MPI_Reduce(mine, sum, first ? 4 : 2, MPI_INT, MPI_SUM, first ? MPI_ROOT : 0, inter);
    if (first) CHECK(code != MPI_SUCCESS && sum[3] == 0);
    return finish();
}
