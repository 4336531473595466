/* Time measurement, records, windows. */
#include "peers.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ITERATIONS_MAX = 1000000 };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One block: a barrier, then `iterations` iterations of the body without a pause, timed on each rank by its own
 * clock from leaving that barrier to the end of its own loop; then a second barrier, which is not timed and in
 * which the ranks that are passive targets wait and make progress meanwhile. The time of the block is the largest
 * among the ranks whose time counts: the origins in one-sided patterns (with two ranks: rank 0, as in the OSU
 * benchmarks), all ranks in collective ones. Valid on rank 0. */
static double block_s(body run, void *argument, long iterations, int counts) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = now_s();
    run(argument, iterations);
    double own = counts ? now_s() - start : 0.0, largest = 0.0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Reduce(&own, &largest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return largest;
}

/* Finds the number of iterations that fill a block. Rank 0 decides and tells the others, so all agree at every step.
 * The runs for this are the warm-up. */
static void calibrate(const struct options *options, body run, void *argument, int counts, long plan[2]) {
    const double want_s = options->budget_s / options->blocks;
    long iterations = 1;
    /* The first run meets cold caches, and queue pairs that are not connected yet. */
    block_s(run, argument, iterations, counts);
    for (;;) {
        double took_s = block_s(run, argument, iterations, counts);
        long next[3] = {0, 0, 0}; /* settled, iterations, blocks */
        if (options->rank == 0) {
            double each_s = took_s / (double)iterations;
            if (took_s >= want_s / 4 || iterations >= ITERATIONS_MAX) {
                long fit = each_s > 0 ? (long)(want_s / each_s) : ITERATIONS_MAX;
                next[0] = 1;
                next[1] = fit < 1 ? 1 : fit > ITERATIONS_MAX ? ITERATIONS_MAX : fit;
                /* If one iteration alone is longer than a block should be, three blocks must suffice. */
                next[2] = each_s > want_s && options->blocks > 3 ? 3 : options->blocks;
            } else {
                double factor = took_s > 0 ? want_s / 2 / took_s : 10;
                factor = factor < 2 ? 2 : factor > 10 ? 10 : factor;
                next[1] = (long)((double)iterations * factor);
            }
        }
        MPI_Bcast(next, 3, MPI_LONG, 0, MPI_COMM_WORLD);
        iterations = next[1];
        if (next[0]) {
            plan[0] = next[1];
            plan[1] = next[2];
            return;
        }
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Name and version from the library itself, so that a run with the wrong library is noticed. */
static void library(char name[32], char version[32]) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    static const char *const known[][2] = {
        {"impi", "Intel(R) MPI Library "}, {"openmpi", "Open MPI v"}, {"mpich", "MPICH Version:"}, {"farside", "Farside "}};
    MPI_Get_library_version(text, &length);
    strcpy(name, "unknown");
    strcpy(version, "unknown");
    for (int i = 0; i < 4; i++) {
        const char *at = strstr(text, known[i][1]);
        if (at) {
            at += strlen(known[i][1]);
            at += strspn(at, " \t");
            strcpy(name, known[i][0]);
            size_t end = strcspn(at, " \t\n,;");
            snprintf(version, 32, "%.*s", (int)(end < 31 ? end : 31), at);
            return;
        }
    }
}

/* Packets that the RDMA devices of this machine have sent, including acknowledgements; -1 if none counts them. */
static long packets_sent(void) {
    glob_t files;
    long sum = -1, value;
    if (glob("/sys/class/infiniband/*/ports/1/hw_counters/sent_pkts", 0, NULL, &files) == 0) {
        for (size_t i = 0; i < files.gl_pathc; i++) {
            FILE *file = fopen(files.gl_pathv[i], "r");
            if (file && fscanf(file, "%ld", &value) == 1)
                sum = (sum < 0 ? 0 : sum) + value;
            if (file)
                fclose(file);
        }
        globfree(&files);
    }
    return sum;
}

/* Rank 0 reads the counters while no rank sends: the others rest longer. */
static long rest(const struct options *options) {
    usleep(options->rank == 0 ? 40000 : 100000);
    return options->rank == 0 ? packets_sent() : 0;
}

/* Packets of `iterations` iterations with their overhead. Valid on rank 0. */
static long packets_of(const struct options *options, body run, void *argument, long iterations, double *took_s) {
    MPI_Barrier(MPI_COMM_WORLD);
    long before = rest(options);
    double start = now_s();
    run(argument, iterations);
    *took_s = now_s() - start;
    MPI_Barrier(MPI_COMM_WORLD);
    return rest(options) - before;
}

/* Packets of one iteration of messages of `bytes`, as benches/src/packets.rs counts them: runs of two lengths, whose
 * difference cancels the overhead, until two in a row agree. */
static double packets_of_one(const struct options *options, long bytes, body run, void *argument, double *us) {
    enum { SHORT = 40, LONG = 140, SMALL = 16384, TRIES = 8 };
    const long part = bytes > SMALL ? 10 : 1, fewer = SHORT / part, more = LONG / part;
    long each = 0, last = -1;
    packets_of(options, run, argument, fewer, us);
    for (int i = 0, done = 0; i < TRIES && !done; i++) {
        double short_s, long_s;
        long less = packets_of(options, run, argument, fewer, &short_s);
        each = packets_of(options, run, argument, more, &long_s) - less;
        *us = long_s * 1e6 / (double)more;
        done = each == last;
        last = each;
        MPI_Bcast(&done, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    return (double)each / (double)(more - fewer);
}

/* Writes the record of `blocks` blocks, in microseconds of one reported operation. `packets` below 0: not counted. */
static void report(const struct options *options, const struct what *what, double *us, long blocks, long iterations,
                   double packets) {
    if (options->rank != 0)
        return;
    qsort(us, (size_t)blocks, sizeof us[0], ascending);
    double median = blocks % 2 ? us[blocks / 2] : (us[blocks / 2 - 1] + us[blocks / 2]) / 2;
    char name[32], version[32];
    library(name, version);
    printf("{\"library\":\"%s\",\"version\":\"%s\",\"suite\":\"%s\",\"window\":\"%s\",\"sync\":\"%s\",\"op\":\"%s\","
           "\"bytes\":%ld,\"ranks\":%d,\"iterations\":%ld,\"us_median\":%.5g,\"us_min\":%.5g",
           name, version, what->suite, what->window, what->sync, what->op, what->bytes, options->ranks, iterations,
           median, us[0]);
    if (what->shape)
        printf(",\"shape\":\"%s\"", what->shape);
    if (what->bandwidth)
        printf(",\"mb_per_s\":%.5g", (double)what->bytes / median);
    if (packets >= 0)
        printf(",\"packets\":%.6g", packets);
    puts("}");
    fflush(stdout);
}

struct options in_short_blocks(const struct options *options) {
    struct options own = *options;
    own.blocks *= 5;
    return own;
}

/* Times `iterations` iterations one by one, and returns their number. */
static long singles(const struct what *what, body run, void *argument, long iterations, double *us) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (long i = 0; i < iterations; i++) {
        double start = now_s();
        run(argument, 1);
        us[i] = (now_s() - start) * 1e6 / what->per_iteration;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return iterations;
}

long measure(const struct options *options, const struct what *what, body run, void *argument, int counts) {
    enum { SINGLES_MAX = 10000 };
    static double us[SINGLES_MAX];
    long plan[2] = {1, 1};
    double packets = -1;
    if (options->packets) {
        packets = packets_of_one(options, what->bytes, run, argument, us) / what->per_iteration;
        us[0] /= what->per_iteration;
    } else {
        calibrate(options, run, argument, counts, plan);
        if (options->single && strcmp(what->suite, "op") == 0) {
            long all = plan[0] * plan[1];
            plan[0] = 1;
            plan[1] = singles(what, run, argument, all < SINGLES_MAX ? all : SINGLES_MAX, us);
        } else {
            for (long i = 0; i < plan[1]; i++)
                us[i] = block_s(run, argument, plan[0], counts) * 1e6 / ((double)plan[0] * what->per_iteration);
        }
    }
    report(options, what, us, plan[1], plan[0] * plan[1], packets);
    return plan[0];
}

void measure_beside(const struct options *options, const struct what *what, body run, void *argument, const char *bare_op,
                    struct bare bare) {
    enum { SINGLES_MAX = 20000 };
    static double us[2][SINGLES_MAX];
    struct options many = *options;
    struct what whats[2] = {*what, *what};
    long plan[2][2], count[2] = {0, 0};
    const body bodies[2] = {run, bare_run};
    void *const arguments[2] = {argument, &bare};
    many.blocks *= 2; /* as Budget::in_many_blocks in benches/src/measure/mod.rs */
    many.budget_s *= 4;
    whats[1].op = bare_op;
    for (int k = 0; k < 2; k++)
        calibrate(&many, bodies[k], arguments[k], options->rank == 0, plan[k]);
    for (long block = 0; block < many.blocks; block++)
        for (int k = 0; k < 2; k++) {
            if (block >= plan[k][1])
                continue;
            const long room = SINGLES_MAX - count[k];
            bodies[k](arguments[k], 1);
            count[k] += singles(what, bodies[k], arguments[k], plan[k][0] < room ? plan[k][0] : room, us[k] + count[k]);
        }
    for (int k = 0; k < 2; k++)
        report(options, &whats[k], us[k], count[k], count[k], -1);
}

/* Processor time of this process. */
static double used_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

void measure_processors(const struct options *options, const struct what *what, body run, void *argument, long iterations) {
    enum { BLOCKS = 5, LONGER = 4 }; /* as benches/src/measure/turns.rs */
    double us[2][BLOCKS];
    iterations *= LONGER;
    for (int i = 0; i < BLOCKS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double before = used_us();
        run(argument, iterations);
        MPI_Barrier(MPI_COMM_WORLD);
        double own = used_us() - before, both[2];
        own = (own < 1e-3 ? 1e-3 : own) / (double)iterations; /* a record's time must not be zero */
        MPI_Allgather(&own, 1, MPI_DOUBLE, both, 1, MPI_DOUBLE, MPI_COMM_WORLD);
        us[0][i] = both[0];
        us[1][i] = both[1];
    }
    struct what side = *what;
    for (int i = 0; i < 2; i++) {
        side.op = i == 0 ? "origin_cpu" : "target_cpu";
        report(options, &side, us[i], BLOCKS, iterations * BLOCKS, -1);
    }
}

void check(int holds, const char *suite, const char *sync, const char *op, const char *reason) {
    if (holds)
        return;
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fprintf(stderr, "peers: rank %d: wrong data in %s %s %s: %s\n", rank, suite, sync, op, reason);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

unsigned char *pages(long bytes) {
    void *memory = NULL;
    if (posix_memalign(&memory, (size_t)sysconf(_SC_PAGESIZE), (size_t)(bytes + 1)) != 0) {
        fprintf(stderr, "peers: no memory for %ld bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    memset(memory, 0, (size_t)bytes);
    return memory;
}

void window_open(struct window *window, const struct options *options, const char *kind, long bytes) {
    bytes = bytes < 8 ? 8 : bytes; /* room for one atomic word */
    window->kind = kind;
    window->bytes = bytes;
    window->partner = options->rank ^ 1;
    window->is_origin = options->rank % 2 == 0;
    window->origin = pages(bytes);
    if (strcmp(kind, "allocated") == 0) {
        MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window->memory, &window->win);
        memset(window->memory, 0, (size_t)bytes);
    } else {
        window->memory = pages(bytes);
        MPI_Win_create(window->memory, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window->win);
    }
    MPI_Group world;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &window->partner, &window->partner_group);
    MPI_Group_free(&world);
    MPI_Barrier(MPI_COMM_WORLD);
}

void window_close(struct window *window) {
    MPI_Group_free(&window->partner_group);
    MPI_Win_free(&window->win);
    if (strcmp(window->kind, "user") == 0)
        free(window->memory);
    free(window->origin);
}
