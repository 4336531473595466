/* Ranks of both groups must make the same calls; also on a duplicate.
   ranks 3
   says VERIFY MPI_BARRIER(0): call inconsistent with call to MPI_Allreduce by 0 of the other group */
#include "inter.h"

int main(void) {
    MPI_Comm both = join_halves(), copy;
    int in = 0, out;
    MPI_Comm_dup(both, &copy);
    int wrong = WRONG_AT(2, 1, 0);
    for (int i = 0; i < 2; i++)
        if (wrong == !i) MPI_Barrier(copy);
        else MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, copy);
    if (IS_WRONG) handled--;
    MPI_Comm_free(&copy);
    MPI_Comm_free(&both);
    return finish();
}
