/* All members of a group give this group; groups without a common rank may differ.
   ranks 4
   says VERIFY MPI_COMM_CREATE(1): group {1,0} inconsistent with group {0,1} of 0 */
#include "check.h"

int main(void) {
    MPI_Group world, half;
    MPI_Comm comm = MPI_COMM_NULL;
    int low[2] = {0, 1}, high[2] = {2, 3}, turned[2] = {1, 0};
    start();
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 2, rank < 2 ? WRONG_AT(1, turned, low) : high, &half);
    MPI_Comm_create(MPI_COMM_WORLD, half, &comm);
    if (comm != MPI_COMM_NULL) {
        MPI_Barrier(comm);
        MPI_Comm_free(&comm);
    }
    /* A call of the members alone. */
    if (rank < 2) {
        MPI_Comm_create_group(MPI_COMM_WORLD, half, 5, &comm);
        if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    }
    if (IS_WRONG && rank < 2) handled--;
    MPI_Group_free(&half);
    MPI_Group_free(&world);
    return finish();
}
