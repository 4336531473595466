/* Locks of a window whose memory others can load and store exclude these accesses too, however the window was made:
   the call returns only once it has the lock.
   ranks 2 4
   not on peers: MPICH gives no pointers to memory of other ranks in such windows */
#include "shared_lock.h"

int main(void) {
    int size, *base;
    MPI_Win win;
    start();
    MPI_Comm node = sharing();
    int me = rank_of(node), mine = me == 0 ? 4 : 0;
    MPI_Comm_size(node, &size);
    OK(MPI_Win_allocate(mine, 4, MPI_INFO_NULL, node, &base, &win));
    one_by_one(win, node, me, size);
    OK(MPI_Win_free(&win));
    return finish();
}
