/* Suite "put": MPI_Put from a layout to the same layout and its flush inside one lock_all epoch, by rank 0 of two, while
 * rank 1 waits in MPI_Barrier; and exchanges of columns, by puts between two fences and by MPI_Alltoall. Layouts as in
 * benches/src/shapes.rs. */
#include "peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BURST = 16, ROW_INTS = 4096, PAGE = 4096 };

struct argument {
    struct window *window;
    MPI_Datatype type;
    int count;
    long step;  /* bytes from one rank's columns to the next one's */
    int ranks;
    int rank;
    int puts;   /* before one flush */
};

static void put_flush(void *argument, long iterations) {
    const struct argument *a = argument;
    const struct window *w = a->window;
    for (long i = 0; w->is_origin && i < iterations; i++) {
        for (int j = 0; j < a->puts; j++)
            MPI_Put(w->origin, a->count, a->type, w->partner, 0, a->count, a->type, w->win);
        MPI_Win_flush(w->partner, w->win);
    }
}

/* An iteration: every rank puts to every rank the columns for it. */
static void fence_alltoall(void *argument, long iterations) {
    const struct argument *a = argument;
    const struct window *w = a->window;
    for (long i = 0; i < iterations; i++) {
        for (int to = 0; to < a->ranks; to++)
            MPI_Put(w->origin + to * a->step, a->count, a->type, to, a->rank * a->step, a->count, a->type, w->win);
        MPI_Win_fence(0, w->win);
    }
}

/* The same by the collective call; the type's extent is that of the columns of one rank. */
static void alltoall(void *argument, long iterations) {
    const struct argument *a = argument;
    for (long i = 0; i < iterations; i++)
        MPI_Alltoall(a->window->origin, a->count, a->type, a->window->memory, a->count, a->type, MPI_COMM_WORLD);
}

static long room_of(MPI_Datatype type, int count) {
    MPI_Aint low, extent, true_low, true_extent;
    MPI_Type_get_extent(type, &low, &extent);
    MPI_Type_get_true_extent(type, &true_low, &true_extent);
    return (long)(true_low + true_extent + (count - 1) * extent);
}

static unsigned char mark(long i, int rank) { return (unsigned char)(i * 5 + i / 253 + 31 * rank + 1); }

/* Puts a marked message to cleared memory and gets all of it back: it must equal the result of packing and
 * unpacking. */
static void check_put(struct argument *a, long room) {
    const struct window *w = a->window;
    if (w->is_origin) {
        unsigned char *wanted = calloc(1, (size_t)room);
        int size, position = 0;
        memset(w->origin, 0, (size_t)room);
        MPI_Put(w->origin, (int)room, MPI_BYTE, w->partner, 0, (int)room, MPI_BYTE, w->win);
        MPI_Win_flush(w->partner, w->win);
        for (long i = 0; i < room; i++)
            w->origin[i] = mark(i, 0);
        MPI_Pack_size(a->count, a->type, MPI_COMM_SELF, &size);
        unsigned char *packed = malloc((size_t)size);
        MPI_Pack(w->origin, a->count, a->type, packed, size, &position, MPI_COMM_SELF);
        position = 0;
        MPI_Unpack(packed, size, &position, wanted, a->count, a->type, MPI_COMM_SELF);
        put_flush(a, 1);
        memset(w->origin, 0xff, (size_t)room);
        MPI_Get(w->origin, (int)room, MPI_BYTE, w->partner, 0, (int)room, MPI_BYTE, w->win);
        MPI_Win_flush(w->partner, w->win);
        check(memcmp(w->origin, wanted, (size_t)room) == 0, "put", "flush", "put", "what came back is not what was put");
        free(packed);
        free(wanted);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* One exchange of marked messages of `rows` rows: each rank's columns must be in place. */
static void check_exchange(struct argument *a, body run, long rows, long room, const char *op) {
    const struct window *w = a->window;
    const long row = 4L * ROW_INTS;
    for (long i = 0; i < room; i++)
        w->origin[i] = mark(i, a->rank);
    memset(w->memory, 0, (size_t)room);
    MPI_Barrier(MPI_COMM_WORLD);
    run(a, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    int holds = 1;
    for (int from = 0; from < a->ranks; from++)
        for (long r = 0; r < rows; r++)
            for (long i = 0; i < a->step; i++)
                holds &= w->memory[r * row + from * a->step + i] == mark(r * row + a->rank * a->step + i, from);
    check(holds, "put", "fence", op, "columns are at wrong positions in the target");
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The number of rows of a message that all ranks exchange: columns, if all fit into a row; else 0. */
static long rows_exchanged(const char *shape, long bytes, int ranks) {
    int rows = 0;
    if (sscanf(shape, "columns_%d", &rows) != 1 || bytes / (4 * rows) * ranks > ROW_INTS)
        return 0;
    return rows;
}

static void puts_of(const struct options *options, const char *kind, const char *shape, long bytes) {
    const struct options own = in_short_blocks(options);
    struct window window;
    struct argument a = {.window = &window, .puts = 1, .ranks = options->ranks, .rank = options->rank};
    make_layout(shape, bytes, &a.type, &a.count);
    long room = room_of(a.type, a.count);
    window_open(&window, options, kind, (room + PAGE - 1) / PAGE * PAGE);
    MPI_Win_lock_all(0, window.win);
    check_put(&a, room);
    const struct what put = {"put", kind, "flush", "put", bytes, 1, 0, shape};
    const struct what put_bw = {"put", kind, "flush", "put_bw", bytes, BURST, 1, shape};
    long iterations = measure(&own, &put, put_flush, &a, window.is_origin);
    if (strcmp(shape, "none") == 0 || strncmp(shape, "columns_", 8) == 0) {
        a.puts = BURST;
        measure(&own, &put_bw, put_flush, &a, window.is_origin);
        a.puts = 1;
        measure_processors(&own, &put, put_flush, &a, iterations);
    }
    MPI_Win_unlock_all(window.win);
    MPI_Type_free(&a.type);
    window_close(&window);
}

/* The exchange of columns: by puts to windows of this kind, or by MPI_Alltoall if the kind is "none". */
static void exchange_of(const struct options *options, const char *kind, const char *shape, long bytes, long rows) {
    const struct options own = in_short_blocks(options);
    const int by_puts = strcmp(kind, "none") != 0;
    struct window window;
    struct argument a = {.window = &window, .step = bytes / rows, .ranks = options->ranks, .rank = options->rank};
    make_layout(shape, bytes, &a.type, &a.count);
    if (!by_puts) {
        MPI_Datatype one = a.type;
        MPI_Type_create_resized(one, 0, a.step, &a.type);
        MPI_Type_commit(&a.type);
        MPI_Type_free(&one);
    }
    long room = (rows - 1) * 4 * ROW_INTS + a.ranks * a.step;
    window_open(&window, options, by_puts ? kind : "user", (room + PAGE - 1) / PAGE * PAGE);
    MPI_Win_fence(0, window.win);
    const struct what what = {"put", kind, by_puts ? "fence" : "twosided", "alltoall", bytes, 1, 0, shape};
    check_exchange(&a, by_puts ? fence_alltoall : alltoall, rows, room, "alltoall");
    measure(&own, &what, by_puts ? fence_alltoall : alltoall, &a, 1);
    MPI_Win_fence(0, window.win);
    MPI_Type_free(&a.type);
    window_close(&window);
}

void run_put(const struct options *options, const char *kind) {
    const char *messages = options->messages;
    char shape[32];
    long bytes, rows;
    while (next_message(&messages, shape, &bytes)) {
        if (options->ranks == 2)
            puts_of(options, kind, shape, bytes);
        if ((rows = rows_exchanged(shape, bytes, options->ranks)) > 0)
            exchange_of(options, kind, shape, bytes, rows);
    }
}

void run_alltoall(const struct options *options) {
    const char *messages = options->messages;
    char shape[32];
    long bytes, rows;
    while (next_message(&messages, shape, &bytes))
        if ((rows = rows_exchanged(shape, bytes, options->ranks)) > 0)
            exchange_of(options, "none", shape, bytes, rows);
}
