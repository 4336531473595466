/* All ranks of a group give one tag.
   ranks 4
   says VERIFY MPI_INTERCOMM_CREATE(1): tag 8 inconsistent with tag 7 of 0 */
#include "check.h"

int main(void) {
    MPI_Comm half, both = MPI_COMM_NULL;
    int low;
    start();
    low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    handle(half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 2 : 0, IS_WRONG && rank % 2 ? 8 : 7, &both);
    if (both != MPI_COMM_NULL) MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return finish();
}
