/* The processes of a node: a split by MPI_COMM_TYPE_SHARED, and a window that all of them load from.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory, *other, unit, ranks, here;
    MPI_Aint bytes;
    start();
    MPI_Comm node = sharing();
    here = rank_of(node);
    OK(MPI_Comm_size(node, &ranks));
    OK(MPI_Win_allocate_shared(sizeof(int), 1, MPI_INFO_NULL, node, &memory, &win));
    OK(MPI_Win_lock_all(MPI_MODE_NOCHECK, win));
    *memory = 5 * here;
    OK(MPI_Win_sync(win));
    OK(MPI_Barrier(node));
    OK(MPI_Win_sync(win));
    for (int rank = 0; rank < ranks; rank++) {
        OK(MPI_Win_shared_query(win, rank, &bytes, &unit, &other));
        CHECK(*other == 5 * rank);
    }
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
    OK(MPI_Comm_free(&node));
    return finish();
}
