/* All ranks of a group give the same high.
   ranks 4
   says VERIFY MPI_INTERCOMM_MERGE(1): high 1 inconsistent with high 0 of 0 */
#include "check.h"

int main(void) {
    MPI_Comm half, both, one = MPI_COMM_NULL;
    int low;
    start();
    low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 2 : 0, 7, &both);
    handle(both);
    MPI_Intercomm_merge(both, low ? WRONG_AT(1, 1, 0) : 2, &one);
    if (one != MPI_COMM_NULL) {
        MPI_Barrier(one);
        MPI_Comm_free(&one);
    }
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return finish();
}
