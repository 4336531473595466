/* The arrays of `benches/src/pgas/arrays.rs` by MPI_Alltoallw: an array whose rows are distributed over the first half of the
 * ranks goes to the other half, where its columns are distributed, and back.
 *
 *     mpiexec -n 4 ./alltoallw [BLOCK_MS]
 *
 * Prints microseconds of one way. Exit code 3: data arrived wrong. */
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCKS = 5 };

static int me, ranks, half;
static double *array;
static int *zeros, *to_first, *to_second;
static MPI_Datatype *types;

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* First index and number of the indices of a block, as HPF distributes them. */
static void block(int count, int parts, int part, int *first, int *number) {
    int each = (count + parts - 1) / parts, end = (part + 1) * each;
    *first = part * each < count ? part * each : count;
    *number = (end < count ? end : count) - *first;
}

/* Binds this rank to a core, in turn, as Farside's ranks are bound. */
static void bind_in_turn(void) {
    cpu_set_t allowed, own;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int core = 0, turn = me % CPU_COUNT(&allowed); core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &allowed) && turn-- == 0) {
            CPU_ZERO(&own);
            CPU_SET(core, &own);
            sched_setaffinity(0, sizeof own, &own);
            return;
        }
}

/* One way: from the first half of the ranks to the second, or back. */
static void transfer(int back) {
    int sends = (me < half) != back;
    const int *counts = me < half ? to_second : to_first;
    MPI_Alltoallw(array, sends ? counts : zeros, zeros, types, array, sends ? zeros : counts, zeros, types, MPI_COMM_WORLD);
}

static double seconds(double wanted) {
    double times[BLOCKS];
    uint64_t count = 1;
    int is_long = 0;
    for (int done = 0; done < BLOCKS;) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (uint64_t i = 0; i < count; i++) {
            transfer(0);
            transfer(1);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        double time = MPI_Wtime() - start;
        MPI_Bcast(&time, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (done == 0 && time < wanted / 2 && count < (uint64_t)1 << 40) {
            double grow = wanted / (time > 1e-9 ? time : 1e-9);
            count = (uint64_t)(count * (grow < 2 ? 2 : grow > 10 ? 10 : grow));
            is_long = 0;
            continue;
        }
        if (!is_long) { /* a block may be long because a rank was interrupted: one more is warm-up */
            is_long = 1;
            continue;
        }
        times[done++] = time / count;
    }
    qsort(times, BLOCKS, sizeof *times, ascending);
    return times[BLOCKS / 2];
}

static void measure(int height, int width, double wanted) {
    int is_first = me < half, own = is_first ? me : me - half, row, rows = height, column, columns = width;
    int parts = is_first ? half : ranks - half, peers = ranks - parts;
    row = column = 0;
    if (is_first)
        block(height, parts, own, &row, &rows);
    else
        block(width, parts, own, &column, &columns);
    array = calloc((size_t)rows * columns + 1, sizeof *array);
    for (int i = 0; is_first && i < rows; i++)
        for (int j = 0; j < columns; j++)
            array[i * columns + j] = 1000.0 * (row + i) + column + j;
    for (int rank = 0; rank < ranks; rank++) {
        types[rank] = MPI_DOUBLE;
        int peer = is_first ? rank - half : rank;
        if (peer < 0 || peer >= peers)
            continue;
        int sizes[] = {rows, columns}, lengths[] = {rows, columns}, starts[] = {0, 0}, d = is_first;
        block(d ? width : height, peers, peer, &starts[d], &lengths[d]);
        MPI_Type_create_subarray(2, sizes, lengths, starts, MPI_ORDER_C, MPI_DOUBLE, &types[rank]);
        MPI_Type_commit(&types[rank]);
    }
    double time = seconds(wanted);
    if (me == 0)
        printf("array_alltoallw %d %.6f\n", 8 * height * width, 0.5e6 * time);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            if (array[i * columns + j] != 1000.0 * (row + i) + column + j) {
                fprintf(stderr, "rank %d: an array is wrong\n", me);
                MPI_Abort(MPI_COMM_WORLD, 3);
            }
    for (int rank = 0; rank < ranks; rank++)
        if (types[rank] != MPI_DOUBLE)
            MPI_Type_free(&types[rank]);
    free(array);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double wanted = 1e-3 * (argc > 1 ? atoi(argv[1]) : 20);
    if (ranks < 2 || wanted <= 0) {
        fprintf(stderr, "usage: mpiexec -n 4 alltoallw [BLOCK_MS]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    bind_in_turn();
    half = ranks / 2;
    zeros = calloc(ranks, sizeof *zeros);
    to_first = calloc(ranks, sizeof *to_first);
    to_second = calloc(ranks, sizeof *to_second);
    types = calloc(ranks, sizeof *types);
    for (int rank = 0; rank < ranks; rank++)
        *(rank < half ? &to_first[rank] : &to_second[rank]) = 1;
    measure(16, 32, wanted);
    measure(256, 512, wanted);
    if (me == 0)
        puts("end");
    MPI_Finalize();
    return 0;
}
