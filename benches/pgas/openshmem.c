/* The operations and tables of `farside-bench pgas` on OpenSHMEM 1.4, in lines of the same form.
 *
 *     oshrun -n 2 ./openshmem [BLOCK_MS] [TABLE_BITS]
 *
 * A put or an atomic addition ends with shmem_quiet. A put with a signal is a put, shmem_fence and a put of the flag, since
 * shmem_put_signal is of version 1.5. */
#include <inttypes.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 5, BATCH = 1 << 14, BATCHES = 16, LONGEST = 1 << 20 };

static int me, ranks;
static double block_s;
static long sync_work[SHMEM_BARRIER_SYNC_SIZE], broadcast_work[SHMEM_BCAST_SYNC_SIZE];
static double time_of_first, time_of_all;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void barrier(void) {
    shmem_barrier(0, 0, ranks, sync_work);
}

static void wrong(const char *what) {
    fprintf(stderr, "rank %d: %s is wrong\n", me, what);
    shmem_global_exit(3);
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef void operation(uint64_t count);

/* Seconds of one operation, at every rank: the median of five blocks of the same length. */
static double seconds(operation *run) {
    double times[BLOCKS];
    uint64_t count = 1;
    int is_long = 0;
    for (int done = 0; done < BLOCKS;) {
        barrier();
        double start = now();
        run(count);
        barrier();
        time_of_first = now() - start;
        barrier();
        shmem_broadcast64(&time_of_all, &time_of_first, 1, 0, 0, 0, ranks, broadcast_work);
        barrier();
        double time = me == 0 ? time_of_first : time_of_all;
        if (done == 0 && time < block_s / 2 && count < (uint64_t)1 << 40) {
            double grow = block_s / (time > 1e-9 ? time : 1e-9);
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

static void line(const char *name, long number, double figure) {
    if (me == 0)
        printf("%s %ld %.6f\n", name, number, figure);
}

static char *area, *own;
static size_t size;
static uint64_t *words, *flag, turn, expected;

static void put(uint64_t count) {
    for (uint64_t i = 0; me == 0 && i < count; i++) {
        shmem_putmem(area, own, size, 1);
        shmem_quiet();
    }
}

static void get(uint64_t count) {
    for (uint64_t i = 0; me == 0 && i < count; i++)
        shmem_getmem(own, area, size, 1);
}

static void add(uint64_t count) {
    for (uint64_t i = 0; me == 0 && i < count; i++) {
        shmem_ulong_atomic_add(&words[0], 1, 1);
        shmem_quiet();
    }
}

static void fetch_add(uint64_t count) {
    for (uint64_t i = 0; me == 0 && i < count; i++)
        if (shmem_ulong_atomic_fetch_add(&words[1], 1, 1) != expected++)
            wrong("a fetched value");
}

static void put_and_set(int rank) {
    memcpy(own, &turn, sizeof turn);
    shmem_putmem(area, own, size, rank);
    shmem_fence();
    shmem_uint64_p(flag, turn, rank);
}

static void put_signal(uint64_t count) {
    for (uint64_t i = 0; me < 2 && i < count; i++) {
        turn++;
        if (me == 0)
            put_and_set(1);
        shmem_uint64_wait_until(flag, SHMEM_CMP_GE, turn);
        if (me == 1) {
            if (memcmp(area, &turn, sizeof turn) != 0)
                wrong("the data put before a flag");
            put_and_set(0);
        }
    }
}

static uint64_t *table, *index_of, *values, mask;
static int bits;

static uint64_t *batch(uint64_t number) {
    return index_of + number % BATCHES * BATCH;
}

static void histogram(uint64_t count) {
    for (uint64_t b = 0; b < count; b++)
        for (uint64_t *index = batch(b), *end = index + BATCH; index < end; index++)
            shmem_ulong_atomic_add(&table[*index & mask], 1, (int)(*index >> bits));
    shmem_quiet();
    expected += count;
}

static void gather(uint64_t count) {
    for (uint64_t b = 0; b < count; b++)
        for (int i = 0; i < BATCH; i++)
            values[i] = shmem_uint64_g(&table[batch(b)[i] & mask], (int)(batch(b)[i] >> bits));
}

static void gather_nbi(uint64_t count) {
    for (uint64_t b = 0; b < count; b++) {
        for (int i = 0; i < BATCH; i++)
            shmem_getmem_nbi(&values[i], &table[batch(b)[i] & mask], sizeof *values, (int)(batch(b)[i] >> bits));
        shmem_quiet();
        if (values[0] != batch(b)[0] || values[BATCH - 1] != batch(b)[BATCH - 1])
            wrong("a gathered value");
    }
}

static void operations(void) {
    const size_t sizes[] = {8, 4096, LONGEST};
    area = shmem_malloc(LONGEST);
    words = shmem_calloc(2, sizeof *words);
    flag = shmem_calloc(1, sizeof *flag);
    own = malloc(LONGEST);
    memset(own, me + 1, LONGEST);
    for (int i = 0; i < 3; i++) {
        size = sizes[i];
        line("put", (long)size, 1e6 * seconds(put));
        line("get", (long)size, 1e6 * seconds(get));
    }
    line("add", 8, 1e6 * seconds(add));
    line("fetch_add", 8, 1e6 * seconds(fetch_add));
    for (int i = 0; i < 3; i++) {
        size = sizes[i];
        line("put_signal", (long)size, 0.5e6 * seconds(put_signal));
    }
    barrier();
}

static void tables(void) {
    uint64_t length = (uint64_t)1 << bits, all = length * (uint64_t)ranks, state = (uint64_t)me;
    mask = length - 1;
    table = shmem_calloc(length, sizeof *table);
    values = malloc(BATCH * sizeof *values);
    index_of = malloc((size_t)BATCH * BATCHES * sizeof *index_of);
    for (size_t i = 0; i < (size_t)BATCH * BATCHES; i++) { /* splitmix64 */
        uint64_t z = state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        index_of[i] = (z ^ (z >> 31)) % all;
    }
    double each = 1e-6 * BATCH * ranks;
    expected = 0;
    line("histogram_loop", 8, each / seconds(histogram));
    static uint64_t sum, sums;
    static uint64_t work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
    static long reduce_work[SHMEM_REDUCE_SYNC_SIZE];
    for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++)
        reduce_work[i] = SHMEM_SYNC_VALUE;
    sum = sums = 0;
    for (uint64_t i = 0; i < length; i++)
        sum += table[i];
    barrier();
    shmem_longlong_sum_to_all((long long *)&sums, (long long *)&sum, 1, 0, 0, ranks, (long long *)work, reduce_work);
    if (sums != expected * BATCH * (uint64_t)ranks)
        wrong("the sum of the table");
    for (uint64_t i = 0; i < length; i++)
        table[i] = (uint64_t)me * length + i;
    barrier();
    line("gather_loop", 8, each / seconds(gather));
    line("gather_batch", 8, each / seconds(gather_nbi));
}

int main(int argc, char **argv) {
    block_s = 1e-3 * (argc > 1 ? atoi(argv[1]) : 20);
    bits = argc > 2 ? atoi(argv[2]) : 18;
    for (int i = 0; i < SHMEM_BARRIER_SYNC_SIZE; i++)
        sync_work[i] = SHMEM_SYNC_VALUE;
    for (int i = 0; i < SHMEM_BCAST_SYNC_SIZE; i++)
        broadcast_work[i] = SHMEM_SYNC_VALUE;
    shmem_init();
    me = shmem_my_pe();
    ranks = shmem_n_pes();
    if (ranks < 2 || block_s <= 0 || bits < 1 || bits > 28) {
        fprintf(stderr, "usage: oshrun -n 2 openshmem [BLOCK_MS] [TABLE_BITS]\n");
        return 2;
    }
    shmem_barrier_all();
    operations();
    tables();
    shmem_barrier_all();
    if (me == 0)
        puts("end");
    fflush(stdout); /* since shmem_finalize of Open MPI 4.1.4 may crash */
    shmem_finalize();
    return 0;
}
