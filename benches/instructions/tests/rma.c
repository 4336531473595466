/* Issues the given number of each operation on 8 bytes, from this rank to its own window, which is mapped, in one
   lock_all epoch; then as many gets, each in an epoch of its own with an exclusive lock. With another argument the
   memory is attached to a dynamic window. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    const int64_t times = argc > 1 ? atol(argv[1]) : 0, one = 1;
    int64_t *memory, old, expected, former;
    MPI_Win win;
    MPI_Aint at = 0;
    MPI_Init(&argc, &argv);
    if (argc > 2) {
        memory = malloc(sizeof *memory);
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_attach(win, memory, sizeof *memory);
        MPI_Get_address(memory, &at);
    } else
        MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_lock_all(0, win);
    for (int64_t i = 0; i < times; i++) {
        MPI_Put(&i, 8, MPI_BYTE, 0, at, 8, MPI_BYTE, win);
        MPI_Accumulate(&one, 1, MPI_INT64_T, 0, at, 1, MPI_INT64_T, MPI_SUM, win);
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, at, MPI_SUM, win);
        expected = i + 2;
        MPI_Compare_and_swap(&i, &expected, &former, MPI_INT64_T, 0, at, win);
        MPI_Win_flush(0, win);
        if (*memory != i || old != i + 1 || former != i + 2)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Win_unlock_all(win);
    for (int64_t i = 0; i < times; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Get(&old, 8, MPI_BYTE, 0, at, 8, MPI_BYTE, win);
        MPI_Win_unlock(0, win);
        if (old != *memory)
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (argc > 2) MPI_Win_detach(win, memory);
    MPI_Win_free(&win);
    if (argc > 2) free(memory);
    MPI_Finalize();
    return 0;
}
