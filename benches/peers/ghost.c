/* Suite "ghost": the ghost-area exchange of Thakur, Gropp and Toonen (EuroPVM/MPI 2004, section 1). The ranks form a
 * periodic two-dimensional grid; every rank sends n integers to each of its four neighbours. Neighbours may be the
 * same rank, also the sender itself; there are always four transfers into four separate areas. An iteration is one
 * exchange. The lock version is the paper's: when it returns, a rank knows that its own data have arrived at the
 * neighbours, not that the neighbours' data have arrived. */
#include "peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIRECTIONS = 4 }; /* west, east, north, south: the opposite of d is d ^ 1 */

struct argument {
    const struct options *options;
    struct window *window;
    int n;
    int neighbour[DIRECTIONS];
    int *out; /* DIRECTIONS areas of n integers */
    int *in;  /* the same; area d is filled by neighbour d */
    MPI_Group group;
};

static void find_neighbours(struct argument *a) {
    int ranks = a->options->ranks, rows = 1;
    for (int r = 1; r * r <= ranks; r++)
        if (ranks % r == 0)
            rows = r;
    int columns = ranks / rows, x = a->options->rank % columns, y = a->options->rank / columns;
    a->neighbour[0] = y * columns + (x + columns - 1) % columns;
    a->neighbour[1] = y * columns + (x + 1) % columns;
    a->neighbour[2] = (y + rows - 1) % rows * columns + x;
    a->neighbour[3] = (y + 1) % rows * columns + x;
}

/* The distinct ranks among the neighbours, as post and start require. */
static MPI_Group neighbour_group(const struct argument *a) {
    int ranks[DIRECTIONS], length = 0;
    for (int d = 0; d < DIRECTIONS; d++) {
        int seen = 0;
        for (int i = 0; i < length; i++)
            seen |= ranks[i] == a->neighbour[d];
        if (!seen)
            ranks[length++] = a->neighbour[d];
    }
    MPI_Group world, group;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, length, ranks, &group);
    MPI_Group_free(&world);
    return group;
}

static void put(const struct argument *a, int d) {
    MPI_Aint area = (MPI_Aint)(d ^ 1) * a->n * (MPI_Aint)sizeof(int);
    MPI_Put(a->out + (size_t)d * a->n, a->n, MPI_INT, a->neighbour[d], area, a->n, MPI_INT, a->window->win);
}

static void exchange_twosided(void *argument, long iterations) {
    const struct argument *a = argument;
    MPI_Request requests[2 * DIRECTIONS];
    for (long i = 0; i < iterations; i++) {
        /* The tag is the direction from the sender's side. */
        for (int d = 0; d < DIRECTIONS; d++)
            MPI_Irecv(a->in + (size_t)d * a->n, a->n, MPI_INT, a->neighbour[d], d ^ 1, MPI_COMM_WORLD, &requests[d]);
        for (int d = 0; d < DIRECTIONS; d++)
            MPI_Isend(a->out + (size_t)d * a->n, a->n, MPI_INT, a->neighbour[d], d, MPI_COMM_WORLD,
                      &requests[DIRECTIONS + d]);
        MPI_Waitall(2 * DIRECTIONS, requests, MPI_STATUSES_IGNORE);
    }
}

/* The asserts are those of the paper's figure 1. */
static void exchange_fence(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++) {
        MPI_Win_fence(MPI_MODE_NOPRECEDE, a->window->win);
        for (int d = 0; d < DIRECTIONS; d++)
            put(a, d);
        MPI_Win_fence(MPI_MODE_NOSTORE | MPI_MODE_NOPUT | MPI_MODE_NOSUCCEED, a->window->win);
    }
}

static void exchange_pscw(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++) {
        MPI_Win_post(a->group, 0, a->window->win);
        MPI_Win_start(a->group, 0, a->window->win);
        for (int d = 0; d < DIRECTIONS; d++)
            put(a, d);
        MPI_Win_complete(a->window->win);
        MPI_Win_wait(a->window->win);
    }
}

static void exchange_lock(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++) {
        for (int d = 0; d < DIRECTIONS; d++) {
            MPI_Win_lock(MPI_LOCK_SHARED, a->neighbour[d], 0, a->window->win);
            put(a, d);
            MPI_Win_unlock(a->neighbour[d], a->window->win);
        }
    }
}

/* The integer that `rank` sends in direction `d` at index `i` in exchange `round`. */
static int value(int rank, int d, int round, int i) {
    return (int)((((unsigned)rank * DIRECTIONS + (unsigned)d) * 8 + (unsigned)round) * 131072u + (unsigned)i);
}

/* Two exchanges with different data are checked; then the measurement follows. */
static void checked(struct argument *a, const char *kind, const char *sync, body run) {
    const size_t n = (size_t)a->n;
    for (int round = 0; round < 2; round++) {
        memset(a->in, 0xff, DIRECTIONS * n * sizeof(int));
        for (int d = 0; d < DIRECTIONS; d++)
            for (int i = 0; i < a->n; i++)
                a->out[d * n + (size_t)i] = value(a->options->rank, d, round, i);
        if (a->window) { /* makes the stores to the window's memory visible to the library */
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, a->options->rank, 0, a->window->win);
            MPI_Win_unlock(a->options->rank, a->window->win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        run(a, 1);
        MPI_Barrier(MPI_COMM_WORLD);
        if (a->window)
            MPI_Win_lock(MPI_LOCK_SHARED, a->options->rank, 0, a->window->win);
        int holds = 1;
        for (int d = 0; d < DIRECTIONS; d++)
            for (int i = 0; i < a->n; i++)
                holds &= a->in[d * n + (size_t)i] == value(a->neighbour[d], d ^ 1, round, i);
        check(holds, "ghost", sync, "ghost", "a ghost area does not contain the data that the neighbour sent");
        if (a->window)
            MPI_Win_unlock(a->options->rank, a->window->win);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    const struct what what = {"ghost", kind, sync, "ghost", (long)(n * sizeof(int)), 1, 0};
    measure(a->options, &what, run, a, 1);
}

static long largest_area(const struct options *options) {
    return DIRECTIONS * options->counts.value[options->counts.length - 1] * (long)sizeof(int);
}

void run_ghost(const struct options *options, const char *kind) {
    struct window window;
    window_open(&window, options, kind, largest_area(options));
    struct argument a = {.options = options, .window = &window};
    a.out = (int *)(void *)window.origin;
    a.in = (int *)(void *)window.memory;
    find_neighbours(&a);
    a.group = neighbour_group(&a);
    for (int i = 0; i < options->counts.length; i++) {
        a.n = (int)options->counts.value[i];
        checked(&a, kind, "fence", exchange_fence);
        checked(&a, kind, "pscw", exchange_pscw);
        checked(&a, kind, "lock", exchange_lock);
    }
    MPI_Group_free(&a.group);
    window_close(&window);
}

void run_ghost_twosided(const struct options *options) {
    struct argument a = {.options = options};
    a.out = calloc(1, (size_t)largest_area(options));
    a.in = calloc(1, (size_t)largest_area(options));
    if (!a.out || !a.in) {
        fputs("peers: no memory\n", stderr);
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    find_neighbours(&a);
    for (int i = 0; i < options->counts.length; i++) {
        a.n = (int)options->counts.value[i];
        checked(&a, "none", "twosided", exchange_twosided);
    }
    free(a.out);
    free(a.in);
}
