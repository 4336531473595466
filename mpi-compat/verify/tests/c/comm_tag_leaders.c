/* Both groups give one tag; their leaders compare it.
   ranks 4
   says VERIFY MPI_INTERCOMM_CREATE(0): tag 7 inconsistent with tag 9 of the other leader
   says VERIFY MPI_INTERCOMM_CREATE(0): tag 9 inconsistent with tag 7 of the other leader */
#include "check.h"

int main(void) {
    MPI_Comm half, both = MPI_COMM_NULL;
    int low;
    start();
    low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    handle(half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 2 : 0, IS_WRONG && low ? 9 : 7, &both);
    if (both != MPI_COMM_NULL) MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return finish();
}
