/* Suite "loops": the loops that users know from IMB and OSU, by size, for tables beside other libraries: also on a busy
 * machine (FARSIDE_PEERS_BUSY of `run`), where the handovers between ranks count. Reductions and accumulates are of
 * doubles. */
#include "peers.h"

#include <stdlib.h>
#include <string.h>

enum { TAG = 7 };

struct argument {
    const struct options *options;
    int bytes;
    int partner;
    int is_origin;
    unsigned char *from, *into;
    MPI_Win win;
    MPI_Group before, after; /* the neighbours in a chain of ranks */
};

static void ping_pong(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++) {
        if (a->is_origin)
            MPI_Send(a->from, a->bytes, MPI_BYTE, a->partner, TAG, MPI_COMM_WORLD);
        MPI_Recv(a->into, a->bytes, MPI_BYTE, a->partner, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!a->is_origin)
            MPI_Send(a->from, a->bytes, MPI_BYTE, a->partner, TAG, MPI_COMM_WORLD);
    }
}

static void exchange(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++)
        MPI_Sendrecv(a->from, a->bytes, MPI_BYTE, a->partner, TAG, a->into, a->bytes, MPI_BYTE, a->partner, TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
}

static void reduce(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++)
        MPI_Reduce(a->from, a->into, a->bytes / 8, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
}

static void allreduce(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++)
        MPI_Allreduce(a->from, a->into, a->bytes / 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static void all_to_all(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++)
        MPI_Alltoall(a->from, a->bytes, MPI_BYTE, a->into, a->bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static void put(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; a->is_origin && i < iterations; i++) {
        MPI_Put(a->from, a->bytes, MPI_BYTE, a->partner, 0, a->bytes, MPI_BYTE, a->win);
        MPI_Win_flush(a->partner, a->win);
    }
}

static void get(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; a->is_origin && i < iterations; i++) {
        MPI_Get(a->into, a->bytes, MPI_BYTE, a->partner, 0, a->bytes, MPI_BYTE, a->win);
        MPI_Win_flush(a->partner, a->win);
    }
}

static void accumulate(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; a->is_origin && i < iterations; i++) {
        MPI_Accumulate(a->from, a->bytes / 8, MPI_DOUBLE, a->partner, 0, a->bytes / 8, MPI_DOUBLE, MPI_SUM, a->win);
        MPI_Win_flush(a->partner, a->win);
    }
}

/* Each rank waits for the epoch of its left neighbour, and then makes one with its right neighbour. */
static void chain(void *argument, long iterations) {
    const struct argument *a = argument;
    const int rank = a->options->rank, last = a->options->ranks - 1;
    for (long i = 0; i < iterations; i++) {
        if (rank > 0) {
            MPI_Win_post(a->before, 0, a->win);
            MPI_Win_wait(a->win);
        }
        if (rank < last) {
            MPI_Win_start(a->after, 0, a->win);
            MPI_Put(a->from, a->bytes, MPI_BYTE, rank + 1, 0, a->bytes, MPI_BYTE, a->win);
            MPI_Win_complete(a->win);
        }
    }
}

/* One call each with data, which must arrive. */
static void check_loops(struct argument *a) {
    const int rank = a->options->rank, ranks = a->options->ranks;
    const long n = a->bytes / 8;
    double *from = (double *)a->from, *into = (double *)a->into;
    for (long i = 0; i < n; i++)
        from[i] = (double)(rank + i % 1000);
    exchange(a, 1);
    int good = 1;
    for (long i = 0; i < n; i++)
        good &= into[i] == (double)(a->partner + i % 1000);
    check(good, "loops", "none", "exchange", "the partner's data did not arrive");
    allreduce(a, 1);
    for (long i = 0; i < n; i++)
        good &= into[i] == (double)(ranks * (ranks - 1) / 2 + ranks * (i % 1000));
    check(good, "loops", "none", "allreduce", "the sum is wrong");
    memset(from, 0, (size_t)a->bytes); /* repeated sums do not change */
}

static MPI_Group neighbour(int rank, int ranks) {
    MPI_Group world, one;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, rank >= 0 && rank < ranks, &rank, &one);
    MPI_Group_free(&world);
    return one;
}

void run_loops(const struct options *options) {
    enum { EVERY, ORIGINS, LAST };
    static const struct {
        const char *op, *sync;
        body run;
        double per_iteration;
        int counts; /* whose time counts */
    } loops[] = {{"latency", "none", ping_pong, 2, ORIGINS},
                 {"exchange", "none", exchange, 1, EVERY},     {"reduce", "none", reduce, 1, EVERY},
                 {"allreduce", "none", allreduce, 1, EVERY},   {"alltoall", "none", all_to_all, 1, EVERY},
                 {"put", "flush", put, 1, ORIGINS},            {"get", "flush", get, 1, ORIGINS},
                 {"accumulate", "flush", accumulate, 1, ORIGINS}, {"put1", "pscw", chain, 1, LAST}};
    const int rank = options->rank, ranks = options->ranks;
    const long room = options->bytes.value[options->bytes.length - 1];
    struct argument a = {.options = options, .partner = rank ^ 1, .is_origin = rank % 2 == 0, .from = pages(room * ranks), .into = pages(room * ranks)};
    unsigned char *memory;
    a.before = neighbour(rank - 1, ranks);
    a.after = neighbour(rank + 1, ranks);
    MPI_Win_allocate(room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &a.win);
    memset(memory, 0, (size_t)room);
    for (int i = 0; i < options->bytes.length; i++) {
        a.bytes = (int)(options->bytes.value[i] & ~7L);
        if (a.bytes == 0)
            continue;
        check_loops(&a);
        for (size_t j = 0; j < sizeof loops / sizeof loops[0]; j++) {
            const struct what what = {"loops", "none", loops[j].sync, loops[j].op, a.bytes, loops[j].per_iteration, 0};
            const int locked = strcmp(loops[j].sync, "flush") == 0, whose = loops[j].counts;
            const int counts = whose == EVERY || (whose == ORIGINS && a.is_origin) || (whose == LAST && rank == ranks - 1);
            if (options->operations[0] && !is_listed(options->operations, loops[j].op))
                continue;
            if (locked)
                MPI_Win_lock_all(0, a.win);
            measure(options, &what, loops[j].run, &a, counts);
            if (locked)
                MPI_Win_unlock_all(a.win);
        }
    }
    MPI_Group_free(&a.before);
    MPI_Group_free(&a.after);
    MPI_Win_free(&a.win);
    free(a.from);
    free(a.into);
}
