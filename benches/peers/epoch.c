/* Suite "epoch": whole synchronization epochs with one put each, between the ranks of every pair (2k, 2k+1). */
#include "peers.h"

#include <string.h>

struct argument {
    struct window *window;
    int bytes;
    int lock_type;
};

static void put(const struct argument *a) {
    MPI_Put(a->window->origin, a->bytes, MPI_BYTE, a->window->partner, 0, a->bytes, MPI_BYTE, a->window->win);
}

/* An iteration: both ranks put to each other and close the epoch. */
static void fence_put(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++) {
        put(a);
        MPI_Win_fence(0, a->window->win);
    }
}

/* An iteration: the even rank puts, and both close the epoch. */
static void fence_put1(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++) {
        if (a->window->is_origin)
            put(a);
        MPI_Win_fence(0, a->window->win);
    }
}

/* An iteration: an epoch there and one back, as in osu_put_latency; half of its time is reported. */
static void pscw_put(void *argument, long iterations) {
    const struct argument *a = argument;
    const MPI_Group group = a->window->partner_group;
    const MPI_Win win = a->window->win;
    for (long i = 0; i < iterations; i++) {
        if (!a->window->is_origin) {
            MPI_Win_post(group, 0, win);
            MPI_Win_wait(win);
        }
        MPI_Win_start(group, 0, win);
        if (a->bytes > 0)
            put(a);
        MPI_Win_complete(win);
        if (a->window->is_origin) {
            MPI_Win_post(group, 0, win);
            MPI_Win_wait(win);
        }
    }
}

/* An iteration: lock, put, unlock by the even rank; the odd one waits in the barrier that ends the block. */
static void lock_put(void *argument, long iterations) {
    const struct argument *a = argument;
    if (!a->window->is_origin)
        return;
    for (long i = 0; i < iterations; i++) {
        MPI_Win_lock(a->lock_type, a->window->partner, 0, a->window->win);
        put(a);
        MPI_Win_unlock(a->window->partner, a->window->win);
    }
}

static void fill(unsigned char *memory, long bytes, int seed) {
    for (long i = 0; i < bytes; i++)
        memory[i] = (unsigned char)(seed * 89 + i * 7 + i / 251 + 1);
}

static int filled(const unsigned char *memory, long bytes, int seed) {
    for (long i = 0; i < bytes; i++)
        if (memory[i] != (unsigned char)(seed * 89 + i * 7 + i / 251 + 1))
            return 0;
    return 1;
}

/* Runs the pattern once on fresh data and checks the result; then measures it. */
static void checked(const struct options *options, struct argument *a, const char *sync, const char *op, body run,
                    int odd_puts, double per_iteration) {
    struct window *window = a->window;
    const struct what what = {"epoch", window->kind, sync, op, a->bytes, per_iteration, 0};
    static int round = 0;
    round++;
    memset(window->memory, 0, (size_t)a->bytes);
    fill(window->origin, a->bytes, options->rank + round);
    MPI_Win_fence(0, window->win);
    run(a, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_fence(0, window->win);
    if (odd_puts || !window->is_origin)
        check(filled(window->memory, a->bytes, window->partner + round), "epoch", sync, op, "the put did not arrive");
    MPI_Barrier(MPI_COMM_WORLD);
    measure(options, &what, run, a, odd_puts || window->is_origin);
}

void run_epochs(const struct options *options, const char *kind) {
    struct window window;
    window_open(&window, options, kind, options->bytes.value[options->bytes.length - 1]);
    for (int i = 0; i < options->bytes.length; i++) {
        struct argument a = {&window, (int)options->bytes.value[i], MPI_LOCK_SHARED};
        checked(options, &a, "fence", "put", fence_put, 1, 1);
        checked(options, &a, "fence", "put1", fence_put1, 0, 1);
        checked(options, &a, "pscw", "put", pscw_put, 1, 2);
        checked(options, &a, "lock", "put", lock_put, 0, 1);
        a.lock_type = MPI_LOCK_EXCLUSIVE;
        checked(options, &a, "lock_exclusive", "put", lock_put, 0, 1);
    }
    if (options->packets) {
        struct argument a = {&window, 0, MPI_LOCK_SHARED};
        checked(options, &a, "pscw", "empty", pscw_put, 0, 2);
    }
    window_close(&window);
}
