/* Makes the given number of reductions of one double over this rank alone, and of accumulates and fetching accumulates of
   8 doubles into its own window, in one lock_all epoch. */
#include <mpi.h>
#include <stdlib.h>

enum { COUNT = 8 };

int main(int argc, char **argv) {
    const long times = argc > 1 ? atol(argv[1]) : 0;
    const double each[COUNT] = {1, 2, 3, 4, 5, 6, 7, 8};
    double *memory, sum = 0, old[COUNT];
    MPI_Win win;
    MPI_Init(&argc, &argv);
    MPI_Win_allocate(sizeof each, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    for (int i = 0; i < COUNT; i++)
        memory[i] = 0;
    MPI_Win_lock_all(0, win);
    for (long i = 0; i < times; i++) {
        MPI_Accumulate(each, COUNT, MPI_DOUBLE, 0, 0, COUNT, MPI_DOUBLE, MPI_SUM, win);
        MPI_Win_flush(0, win);
        MPI_Get_accumulate(each, COUNT, MPI_DOUBLE, old, COUNT, MPI_DOUBLE, 0, 0, COUNT, MPI_DOUBLE, MPI_SUM, win);
        MPI_Win_flush(0, win);
        MPI_Allreduce(&memory[COUNT - 1], &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (sum != 16.0 * (double)(i + 1) || old[1] != sum / 4 - 2)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
