/* What the parts of the peers program share: options, the ranks, the time measurement, checks.
 *
 * The program runs the measurements of farside-benches on an MPI library and writes one JSON object per
 * measurement to standard output, from rank 0. Everything else goes to standard error. */
#ifndef FARSIDE_PEERS_H
#define FARSIDE_PEERS_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

enum { LIST_MAX = 32, OPERATIONS = 64 };
/* OPERATIONS: before one flush, where bandwidth is measured in the suite "op". */

/* A list of numbers from the command line. */
struct list {
    int length;
    long value[LIST_MAX];
};

/* The command line, and who this rank is. */
struct options {
    int rank;
    int ranks;
    double budget_s;     /* time that the blocks of one measurement may take together */
    int blocks;          /* how many blocks make a median */
    struct list bytes;   /* sizes of put and get */
    struct list counts;  /* integers per neighbour in the ghost-area exchange */
    int epoch, op, am, barrier, ghost, pack, put, coll, two_sided, irregular; /* which suites */
    const char *operations; /* suite coll: names, separated by commas */
    const char *messages; /* suites pack and put: SHAPE:BYTES,... */
    int single;          /* suite op: time every single iteration, as perftest does */
    int packets;         /* count the packets of RDMA devices of this machine instead */
    int allocated, user;               /* which window kinds */
};

/* What is measured: the fields of the record. */
struct what {
    const char *suite;
    const char *window;
    const char *sync;
    const char *op;
    long bytes;
    double per_iteration; /* an iteration of the body does this many of what is reported */
    int bandwidth;        /* also report mb_per_s */
    const char *shape;    /* the layout, where there are several */
};

/* A window with its memory and this rank's own buffer for origin data, both page-aligned. */
struct window {
    const char *kind; /* "allocated" or "user" */
    MPI_Win win;
    unsigned char *memory;
    unsigned char *origin;
    long bytes;
    int partner;   /* the rank with which this one is paired: rank ^ 1 */
    int is_origin; /* even ranks act in one-sided patterns, odd ones are their targets */
    MPI_Group partner_group;
};

/* Runs `iterations` iterations of a pattern on this rank. */
typedef void (*body)(void *argument, long iterations);

/* Times `run` and writes a record. Collective. `counts` says whether this rank's time counts. Returns the iterations of
 * a block. */
long measure(const struct options *options, const struct what *what, body run, void *argument, int counts);

/* The same with short blocks, so that the fastest has met nothing else that the machine does; as many as Farside's. */
struct options in_short_blocks(const struct options *options);

/* As measure with options->single, in turns with a bare request, whose record is that of the operation `bare_op`; blocks as
 * those of benches/src/measure/raw.rs. Collective. */
void measure_beside(const struct options *options, const struct what *what, body run, void *argument, const char *bare_op,
                    body bare);

/* A bare queue pair between two ranks over RDMA devices, for sizes up to `room`; false where there is none to be had.
 * Collective. */
int bare_open(const struct options *options, long room);
void bare_close(void);
/* How many bytes the following transfer, fetch-and-add apart. */
void bare_size(long size);
/* Requests by rank 0: one that is complete before the next, or (writes, reads) OPERATIONS of them at a time. */
void bare_write(void *argument, long iterations);
void bare_read(void *argument, long iterations);
void bare_fetch_add(void *argument, long iterations);
void bare_writes(void *argument, long iterations);
void bare_reads(void *argument, long iterations);

/* Writes what ranks 0 and 1 use of their processors in an iteration of `run`, which rank 0 does while rank 1 waits in
 * MPI_Barrier: as the operations origin_cpu and target_cpu. `iterations` fill a block. Collective. */
void measure_processors(const struct options *options, const struct what *what, body run, void *argument, long iterations);

/* Ends the whole job with a message when a check fails. */
void check(int holds, const char *suite, const char *sync, const char *op, const char *reason);

void window_open(struct window *window, const struct options *options, const char *kind, long bytes);
void window_close(struct window *window);

void run_epochs(const struct options *options, const char *kind);
void run_operations(const struct options *options, const char *kind);
void run_messages(const struct options *options);
void run_ghost(const struct options *options, const char *kind);
void run_pack(const struct options *options, const char *messages);
void run_put(const struct options *options, const char *kind);
void run_alltoall(const struct options *options);
void run_collectives(const struct options *options);
void run_two_sided(const struct options *options);
void run_irregular(const struct options *options);

/* Whether `name` is one of a list with commas. */
int is_listed(const char *list, const char *name);

/* So many bytes, page-aligned, zeroed. */
unsigned char *pages(long bytes);

/* The next SHAPE:BYTES of `*messages`, which then stands behind it; false at the end. Ends the job if it is none. */
int next_message(const char **messages, char shape[32], long *bytes);

/* Makes `count` of `type` the message of `bytes` bytes of a shape of benches/src/shapes.rs; false if it is not known. */
int make_layout(const char *shape, long bytes, MPI_Datatype *type, int *count);
void run_ghost_twosided(const struct options *options);

#endif
