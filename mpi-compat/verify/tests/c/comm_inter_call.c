/* Ranks of both groups make the same calls; so on a duplicate.
   ranks 3
   says VERIFY MPI_BARRIER(0): call inconsistent with call to MPI_Allreduce by 0 of the other group */
#include "check.h"

int main(void) {
    MPI_Comm half, both, copy;
    int low, in = 0, out;
    start();
    low = rank < 2;
    MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? 2 : 0, 7, &both);
    MPI_Comm_dup(both, &copy);
    handle(copy);
    int wrong = WRONG_AT(2, 1, 0);
    for (int i = 0; i < 2; i++)
        if (wrong == !i) MPI_Barrier(copy);
        else MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, copy);
    if (IS_WRONG) handled--;
    MPI_Comm_free(&copy);
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
    return finish();
}
