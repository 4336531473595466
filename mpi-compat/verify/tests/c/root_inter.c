/* Between groups the root gives MPI_ROOT, and the other group its rank.
   ranks 4
   says VERIFY MPI_BCAST(1): root 1 inconsistent with root 0 of 0 */
#include "check.h"

int main(void) {
    MPI_Comm half, both;
    int value = 0, low, root;
    start();
    low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 2 : 0, 7, &both);
    handle(both);
    root = low ? (rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : WRONG_AT(3, 1, 0);
    MPI_Bcast(&value, 1, MPI_INT, root, both);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return finish();
}
