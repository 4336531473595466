/* All ranks of a group give the same value of high.
   ranks 4
   says VERIFY MPI_INTERCOMM_MERGE(1): high 1 inconsistent with high 0 of 0 */
#include "inter.h"

int main(void) {
    MPI_Comm both = join_halves(), one = MPI_COMM_NULL;
    MPI_Intercomm_merge(both, rank < 2 ? WRONG_AT(1, 1, 0) : 2, &one);
    if (one != MPI_COMM_NULL) {
        MPI_Barrier(one);
        MPI_Comm_free(&one);
    }
    MPI_Comm_free(&both);
    return finish();
}
