/* Whole pages of MPI_Alloc_mem in a window are mapped if those of MPI_Win_allocate are.
   ranks 2
   not on peers: they need not map the memory of MPI_Win_create */
#include "rma.h"

enum { BYTES = 2 * 4096 };

int main(void) {
    int *memory, *allocated, *found, unit;
    MPI_Aint bytes, most;
    MPI_Win other;
    start();
    me = rank_of(MPI_COMM_WORLD);
    OK(MPI_Alloc_mem(BYTES, MPI_INFO_NULL, &memory));
    memory[1] = 100 + me;
    OK(MPI_Win_create(memory, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &allocated, &other));
    OK(MPI_Win_shared_query(other, !me, &most, &unit, &found));
    OK(MPI_Win_shared_query(win, !me, &bytes, &unit, &found));
    CHECK(bytes == most && (bytes == 0 || found[1] == 100 + !me));
    MPI_Barrier(MPI_COMM_WORLD);
    end_window(&other);
    end_window(&win);
    OK(MPI_Free_mem(memory));
    return finish();
}
