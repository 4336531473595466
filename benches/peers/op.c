/* Suite "op": single operations and their completion inside one lock_all epoch, by the even rank of every pair,
 * while the odd rank waits in MPI_Barrier. Suites "am" and "barrier": a two-sided round trip, and MPI_Barrier. */
#include "peers.h"

#include <string.h>

enum { LONG = 1 << 20 }; /* the size from which the time depends on the bytes alone; as in benches/src/measure/op.rs */

struct argument {
    struct window *window;
    int bytes;
    int64_t one;
    int64_t compare; /* the value at the target that compare-and-swap expects */
    int64_t result;
    int64_t failed;  /* swaps that found another value */
};

/* An iteration: `operations` puts or gets to the same address, then one flush. */
static inline void transfer(const struct argument *a, long iterations, int is_put, int operations) {
    const struct window *w = a->window;
    for (long i = 0; w->is_origin && i < iterations; i++) {
        for (int j = 0; j < operations; j++)
            if (is_put)
                MPI_Put(w->origin, a->bytes, MPI_BYTE, w->partner, 0, a->bytes, MPI_BYTE, w->win);
            else
                MPI_Get(w->origin, a->bytes, MPI_BYTE, w->partner, 0, a->bytes, MPI_BYTE, w->win);
        MPI_Win_flush(w->partner, w->win);
    }
}

static void put_flush(void *argument, long iterations) { transfer(argument, iterations, 1, 1); }

static void get_flush(void *argument, long iterations) { transfer(argument, iterations, 0, 1); }

/* The reported time is that of one operation. */
static void put_burst(void *argument, long iterations) { transfer(argument, iterations, 1, OPERATIONS); }

static void get_burst(void *argument, long iterations) { transfer(argument, iterations, 0, OPERATIONS); }

static void fetch_op_flush(void *argument, long iterations) {
    struct argument *a = argument;
    const struct window *w = a->window;
    for (long i = 0; w->is_origin && i < iterations; i++) {
        MPI_Fetch_and_op(&a->one, &a->result, MPI_INT64_T, w->partner, 0, MPI_SUM, w->win);
        MPI_Win_flush(w->partner, w->win);
    }
}

/* Every swap should succeed: it expects the value that the previous one stored. */
static void cas_flush(void *argument, long iterations) {
    struct argument *a = argument;
    const struct window *w = a->window;
    for (long i = 0; w->is_origin && i < iterations; i++) {
        int64_t next = a->compare + 1;
        MPI_Compare_and_swap(&next, &a->compare, &a->result, MPI_INT64_T, w->partner, 0, w->win);
        MPI_Win_flush(w->partner, w->win);
        a->failed += a->result != a->compare;
        a->compare = next;
    }
}

static void accumulate_flush(void *argument, long iterations) {
    const struct argument *a = argument;
    const struct window *w = a->window;
    for (long i = 0; w->is_origin && i < iterations; i++) {
        MPI_Accumulate(&a->one, 1, MPI_INT64_T, w->partner, 0, 1, MPI_INT64_T, MPI_SUM, w->win);
        MPI_Win_flush(w->partner, w->win);
    }
}

/* Puts a marked buffer, clears it and gets it back: both directions must bring every byte. */
static void check_put_get(struct argument *a) {
    const struct window *w = a->window;
    if (w->is_origin) {
        for (int i = 0; i < a->bytes; i++)
            w->origin[i] = (unsigned char)(i * 5 + i / 253 + w->partner + a->bytes);
        put_flush(a, 1);
        memset(w->origin, 0, (size_t)a->bytes);
        get_flush(a, 1);
        int holds = 1;
        for (int i = 0; i < a->bytes; i++)
            holds &= w->origin[i] == (unsigned char)(i * 5 + i / 253 + w->partner + a->bytes);
        check(holds, "op", "flush", "put and get", "what came back is not what was put");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Three updates of a cleared word: the target must then hold exactly three. */
static void check_atomic(struct argument *a, const char *op, body run) {
    const struct window *w = a->window;
    a->one = 1;
    a->compare = a->failed = 0;
    if (w->is_origin) {
        int64_t word = 0;
        MPI_Put(&word, 8, MPI_BYTE, w->partner, 0, 8, MPI_BYTE, w->win);
        MPI_Win_flush(w->partner, w->win);
        run(a, 3);
        word = -1;
        MPI_Get(&word, 8, MPI_BYTE, w->partner, 0, 8, MPI_BYTE, w->win);
        MPI_Win_flush(w->partner, w->win);
        check(word == 3, "op", "flush", op, "three increments did not add up to 3");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

void run_operations(const struct options *options, const char *kind) {
    static const struct {
        const char *op;
        body run;
    } atomics[] = {{"fetch_op", fetch_op_flush}, {"cas", cas_flush}, {"accumulate", accumulate_flush}};
    struct window window;
    struct argument a = {.window = &window};
    window_open(&window, options, kind, options->bytes.value[options->bytes.length - 1]);
    MPI_Win_lock_all(0, window.win);
    const int bare = bare_open(options, options->bytes.value[options->bytes.length - 1]);
    for (int i = 0; i < options->bytes.length; i++) {
        a.bytes = (int)options->bytes.value[i];
        const struct what put = {"op", kind, "flush", "put", a.bytes, 1, 0};
        const struct what get = {"op", kind, "flush", "get", a.bytes, 1, 0};
        const struct what put_bw = {"op", kind, "flush", "put_bw", a.bytes, OPERATIONS, 1};
        const struct what get_bw = {"op", kind, "flush", "get_bw", a.bytes, OPERATIONS, 1};
        check_put_get(&a);
        if (bare && (a.bytes == 8 || a.bytes >= LONG)) {
            measure_beside(options, &put, put_flush, &a, "raw_write_done", (struct bare){BARE_WRITE, 1, a.bytes});
            measure_beside(options, &get, get_flush, &a, "raw_read", (struct bare){BARE_READ, 1, a.bytes});
            measure_beside(options, &put_bw, put_burst, &a, "raw_write_bw", (struct bare){BARE_WRITE, OPERATIONS, a.bytes});
            measure_beside(options, &get_bw, get_burst, &a, "raw_read_bw", (struct bare){BARE_READ, OPERATIONS, a.bytes});
            continue;
        }
        measure(options, &put, put_flush, &a, window.is_origin);
        measure(options, &get, get_flush, &a, window.is_origin);
        if (options->packets)
            continue; /* packets are counted for single operations */
        measure(options, &put_bw, put_burst, &a, window.is_origin);
        measure(options, &get_bw, get_burst, &a, window.is_origin);
    }
    for (int i = 0; i < 3; i++) {
        const struct what what = {"op", kind, "flush", atomics[i].op, 8, 1, 0};
        check_atomic(&a, atomics[i].op, atomics[i].run);
        if (bare && i == 0)
            measure_beside(options, &what, atomics[i].run, &a, "raw_atomic", (struct bare){BARE_FETCH_ADD, 1, 8});
        else
            measure(options, &what, atomics[i].run, &a, window.is_origin);
        check(a.failed == 0, "op", "flush", atomics[i].op, "a swap found a value that was never stored");
    }
    if (bare)
        bare_close();
    MPI_Win_unlock_all(window.win);
    window_close(&window);
}

/* An iteration: 8 bytes to the odd rank and back; the whole round trip is reported. */
static void ping_pong(void *argument, long iterations) {
    const int rank = *(const int *)argument, partner = rank ^ 1;
    int64_t word = 0;
    for (long i = 0; i < iterations; i++) {
        if (rank % 2 == 0)
            MPI_Send(&word, 8, MPI_BYTE, partner, 1, MPI_COMM_WORLD);
        MPI_Recv(&word, 8, MPI_BYTE, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank % 2 == 1) {
            word++;
            MPI_Send(&word, 8, MPI_BYTE, partner, 1, MPI_COMM_WORLD);
        }
    }
    check(rank % 2 == 1 || word == iterations, "am", "none", "pingpong", "the partner did not increment the word");
}

static void barriers(void *argument, long iterations) {
    (void)argument;
    for (long i = 0; i < iterations; i++)
        MPI_Barrier(MPI_COMM_WORLD);
}

void run_messages(const struct options *options) {
    const struct what round_trip = {"am", "none", "none", "pingpong", 8, 1, 0};
    const struct what barrier = {"barrier", "none", "none", "barrier", 0, 1, 0};
    int rank = options->rank;
    if (is_listed(options->suites, "am"))
        measure(options, &round_trip, ping_pong, &rank, rank % 2 == 0);
    if (is_listed(options->suites, "barrier"))
        measure(options, &barrier, barriers, NULL, 1);
}
