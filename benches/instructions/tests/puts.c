/* So many puts of 8 bytes from this rank to its own window, which is mapped, in one epoch on all targets. */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const long puts = argc > 1 ? atol(argv[1]) : 0;
    long from = 0, *memory;
    MPI_Win win;
    MPI_Init(&argc, &argv);
    MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_lock_all(0, win);
    for (; from < puts; from++)
        MPI_Put(&from, 8, MPI_BYTE, 0, 0, 8, MPI_BYTE, win);
    MPI_Win_flush(0, win);
    if (puts > 0 && *memory != puts - 1)
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
