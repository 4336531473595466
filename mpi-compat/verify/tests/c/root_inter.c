/* On an intercommunicator the root gives MPI_ROOT, and the other group its rank.
   ranks 4
   says VERIFY MPI_BCAST(1): root 1 inconsistent with root 0 of 0 */
#include "inter.h"

int main(void) {
    MPI_Comm both = join_halves();
    int value = 0, root;
    root = rank < 2 ? (rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : WRONG_AT(3, 1, 0);
    MPI_Bcast(&value, 1, MPI_INT, root, both);
    MPI_Comm_free(&both);
    return finish();
}
