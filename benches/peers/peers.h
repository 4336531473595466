/* Declarations shared by the parts of the peers program: options, the ranks, the time measurement, checks. The
 * program runs the measurements of farside-benches on an MPI library and writes one JSON object per measurement to
 * standard output, from rank 0. Everything else goes to standard error. */
#ifndef FARSIDE_PEERS_H
#define FARSIDE_PEERS_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

enum { LIST_MAX = 32, OPERATIONS = 64 };
/* OPERATIONS: before one flush, in the bandwidth measurements of suite "op". */

/* A list of numbers from the command line. */
struct list {
    int length;
    long value[LIST_MAX];
};

/* The command line, and this rank. */
struct options {
    int rank;
    int ranks;
    double budget_s;     /* the time for all blocks of one measurement, in seconds */
    int blocks;          /* the number of blocks of a median */
    struct list bytes;   /* sizes of put and get */
    struct list counts;  /* integers per neighbour in the ghost-area exchange */
    const char *suites;  /* names, separated by commas */
    const char *windows; /* "allocated", "user" or both */
    const char *operations; /* suites coll and loops: names, separated by commas */
    const char *messages; /* suites pack and put: SHAPE:BYTES,... */
    int single;          /* suite op: time every single iteration, as perftest does */
    int packets;         /* count the packets of RDMA devices of this machine instead */
};

/* The measured operation: fields of the record. */
struct what {
    const char *suite;
    const char *window;
    const char *sync;
    const char *op;
    long bytes;
    double per_iteration; /* the number of reported operations in an iteration */
    int bandwidth;        /* also report mb_per_s */
    const char *shape;    /* the layout, or NULL */
};

/* A window with its memory and this rank's buffer for origin data, both page-aligned. */
struct window {
    const char *kind; /* "allocated" or "user" */
    MPI_Win win;
    unsigned char *memory;
    unsigned char *origin;
    long bytes;
    int partner;   /* the rank that this one is paired with: rank ^ 1 */
    int is_origin; /* even ranks act in one-sided patterns, odd ones are their targets */
    MPI_Group partner_group;
};

/* Runs `iterations` iterations of a pattern on this rank. */
typedef void (*body)(void *argument, long iterations);

/* Times `run` and writes a record. Collective. `counts` tells whether this rank's time counts. Returns the number of
 * iterations in a block. */
long measure(const struct options *options, const struct what *what, body run, void *argument, int counts);

/* The same with short blocks, so that the fastest one was not disturbed by other load of the machine; as many blocks
 * as Farside uses. */
struct options in_short_blocks(const struct options *options);

/* Requests of rank 0 over a bare queue pair, all posted before the first completion is waited for. */
struct bare {
    enum { BARE_WRITE, BARE_READ, BARE_FETCH_ADD } action;
    int count;
    long bytes;
};

/* Opens a bare queue pair between two ranks over RDMA devices, for sizes up to `room`; false if there is no device.
 * Collective. */
int bare_open(const struct options *options, long room);
void bare_close(void);
/* A body whose argument is a struct bare. */
void bare_run(void *bare, long iterations);

/* Like measure with options->single, alternately with bare requests, whose record has the operation `bare_op`; blocks
 * as in benches/src/measure/limits.rs. Collective. */
void measure_beside(const struct options *options, const struct what *what, body run, void *argument, const char *bare_op,
                    struct bare bare);

/* Writes the processor time of ranks 0 and 1 in an iteration of `run`, which rank 0 executes while rank 1 waits in
 * MPI_Barrier, as operations origin_cpu and target_cpu. `iterations` fill a block. Collective. */
void measure_processors(const struct options *options, const struct what *what, body run, void *argument, long iterations);

/* Ends the whole job with a message when a check fails. */
void check(int holds, const char *suite, const char *sync, const char *op, const char *reason);

void window_open(struct window *window, const struct options *options, const char *kind, long bytes);
void window_close(struct window *window);

void run_epochs(const struct options *options, const char *kind);
void run_operations(const struct options *options, const char *kind);
void run_messages(const struct options *options);
void run_ghost(const struct options *options, const char *kind);
void run_pack(const struct options *options);
void run_put(const struct options *options, const char *kind);
void run_alltoall(const struct options *options);
void run_collectives(const struct options *options);
void run_two_sided(const struct options *options);
void run_irregular(const struct options *options);
void run_loops(const struct options *options);
void run_threads(const struct options *options);

/* Whether `name` is in a comma-separated list. */
int is_listed(const char *list, const char *name);

/* Page-aligned, zeroed memory of `bytes` bytes. */
unsigned char *pages(long bytes);

/* Reads the next SHAPE:BYTES from `*messages`, and advances that; false at the end. Ends the job if it is malformed. */
int next_message(const char **messages, char shape[32], long *bytes);

/* Sets `type` and `count` to a message of `bytes` bytes of a shape of benches/src/shapes.rs; ends the job if the shape
 * is unknown. */
void make_layout(const char *shape, long bytes, MPI_Datatype *type, int *count);
void run_ghost_twosided(const struct options *options);

#endif
