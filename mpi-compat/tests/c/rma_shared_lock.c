/* A lock of a shared window also excludes the loads and stores of others.
   ranks 2 4 */
#include "shared_lock.h"

int main(void) {
    int size, *base;
    MPI_Win win;
    start();
    MPI_Comm node = sharing();
    int me = rank_of(node);
    MPI_Comm_size(node, &size);
    OK(MPI_Win_allocate_shared(me == 0 ? 4 : 0, 4, MPI_INFO_NULL, node, &base, &win));
    one_by_one(win, node, me, size);
    OK(MPI_Win_free(&win));
    return finish();
}
