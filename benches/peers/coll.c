/* Suite "coll": collectives on doubles. An iteration is one call; rooted operations change the root to the next rank
 * in each call, so that no rank runs ahead. As in benches/src/measure/coll.rs, reductions of a vector are in place. */
#include "peers.h"

#include <stdlib.h>
#include <string.h>

enum operation {
    BARRIER, BROADCAST, SCATTER, GATHER, ALLGATHER, ALLTOALL, REDUCE, ALLREDUCE, REDUCE_SCATTER, SCAN, EXSCAN,
    NEIGHBOR_ALLGATHER, NEIGHBOR_ALLTOALL, OPERATIONS_ALL
};

static const char *const names[OPERATIONS_ALL] = {
    "barrier", "broadcast", "scatter", "gather", "allgather", "alltoall", "reduce", "allreduce", "reduce_scatter", "scan",
    "exscan", "neighbor_allgather", "neighbor_alltoall"};

struct argument {
    enum operation operation;
    int rank, ranks, count;
    double *from, *into; /* blocks of `count` doubles, one for each rank */
    MPI_Comm ring;       /* edges to, and from, the rank before and the rank after */
    int root;            /* the next root */
};

static void call(struct argument *a) {
    const int n = a->count, root = a->root;
    void *const in_place = MPI_IN_PLACE;
    const MPI_Comm world = MPI_COMM_WORLD;
    a->root = (root + 1) % a->ranks;
    switch (a->operation) {
    case BARRIER:
        MPI_Barrier(world);
        break;
    case BROADCAST:
        MPI_Bcast(a->into, n, MPI_DOUBLE, root, world);
        break;
    case SCATTER:
        MPI_Scatter(a->from, n, MPI_DOUBLE, a->into, n, MPI_DOUBLE, root, world);
        break;
    case GATHER:
        MPI_Gather(a->from, n, MPI_DOUBLE, a->into, n, MPI_DOUBLE, root, world);
        break;
    case ALLGATHER:
        MPI_Allgather(a->from, n, MPI_DOUBLE, a->into, n, MPI_DOUBLE, world);
        break;
    case ALLTOALL:
        MPI_Alltoall(a->from, n, MPI_DOUBLE, a->into, n, MPI_DOUBLE, world);
        break;
    case REDUCE:
        MPI_Reduce(a->rank == root ? in_place : a->into, a->rank == root ? a->into : NULL, n, MPI_DOUBLE, MPI_SUM, root, world);
        break;
    case ALLREDUCE:
        MPI_Allreduce(in_place, a->into, n, MPI_DOUBLE, MPI_SUM, world);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(a->from, a->into, n, MPI_DOUBLE, MPI_SUM, world);
        break;
    case SCAN:
        MPI_Scan(in_place, a->into, n, MPI_DOUBLE, MPI_SUM, world);
        break;
    case EXSCAN:
        MPI_Exscan(in_place, a->into, n, MPI_DOUBLE, MPI_SUM, world);
        break;
    case NEIGHBOR_ALLGATHER:
        MPI_Neighbor_allgather(a->from, n, MPI_DOUBLE, a->into, n, MPI_DOUBLE, a->ring);
        break;
    case NEIGHBOR_ALLTOALL:
        MPI_Neighbor_alltoall(a->from, n, MPI_DOUBLE, a->into, n, MPI_DOUBLE, a->ring);
        break;
    default:
        break;
    }
}

static void calls(void *argument, long iterations) {
    for (long i = 0; i < iterations; i++)
        call(argument);
}

/* Double `index` of the input of a rank. Sums of these are exact. */
static double value(int rank, long index) {
    return rank * 7 + index % 1009 + 1;
}

/* Whether the block at `at` is that of one rank, from its double `first` on. */
static int is_block(const struct argument *a, const double *at, int rank, long first) {
    for (long i = 0; i < a->count; i++)
        if (at[i] != value(rank, first + i))
            return 0;
    return 1;
}

/* Whether the output is the sum of the ranks before `end`, from their doubles `first` on. */
static int is_sum(const struct argument *a, int end, long first) {
    for (long i = 0; i < a->count; i++) {
        double sum = 0;
        for (int rank = 0; rank < end; rank++)
            sum += value(rank, first + i);
        if (a->into[i] != sum)
            return 0;
    }
    return 1;
}

static int is_right(const struct argument *a, int root) {
    const long n = a->count, own = n * a->rank;
    const int before = (a->rank + a->ranks - 1) % a->ranks, after = (a->rank + 1) % a->ranks;
    int right = 1;
    switch (a->operation) {
    case BROADCAST:
        return is_block(a, a->into, root, 0);
    case SCATTER:
        return is_block(a, a->into, root, own);
    case GATHER:
    case ALLGATHER:
        for (int rank = 0; rank < a->ranks && (a->operation == ALLGATHER || a->rank == root); rank++)
            right &= is_block(a, a->into + n * rank, rank, 0);
        return right;
    case ALLTOALL:
        for (int rank = 0; rank < a->ranks; rank++)
            right &= is_block(a, a->into + n * rank, rank, own);
        return right;
    case REDUCE:
        return a->rank != root || is_sum(a, a->ranks, 0);
    case ALLREDUCE:
        return is_sum(a, a->ranks, 0);
    case REDUCE_SCATTER:
        return is_sum(a, a->ranks, own);
    case SCAN:
        return is_sum(a, a->rank + 1, 0);
    case EXSCAN:
        return a->rank == 0 || is_sum(a, a->rank, 0);
    case NEIGHBOR_ALLGATHER:
        return is_block(a, a->into, before, 0) && is_block(a, a->into + n, after, 0);
    case NEIGHBOR_ALLTOALL:
        /* Two ranks have two edges in each direction, which match in order. */
        return is_block(a, a->into, before, a->ranks == 2 ? 0 : n) && is_block(a, a->into + n, after, a->ranks == 2 ? n : 0);
    default:
        return 1;
    }
}

static void check_calls(struct argument *a) {
    const long all = (long)a->count * a->ranks;
    for (int turn = 0; turn < 2; turn++) {
        const int root = a->root = turn == 0 ? 0 : a->ranks - 1;
        const int is_input = a->operation >= REDUCE || (a->operation == BROADCAST && a->rank == root);
        for (long i = 0; i < all; i++) {
            a->from[i] = value(a->rank, i);
            a->into[i] = is_input ? a->from[i] : -1;
        }
        call(a);
        check(is_right(a, root), "coll", "none", names[a->operation], "the output is not what it must be");
    }
    /* Zeros, so that repeated sums do not change. */
    memset(a->from, 0, (size_t)all * sizeof *a->from);
    memset(a->into, 0, (size_t)all * sizeof *a->into);
    a->root = 0;
    MPI_Barrier(MPI_COMM_WORLD);
}

void run_collectives(const struct options *options) {
    const int ranks = options->ranks, rank = options->rank;
    const int ends[2] = {(rank + ranks - 1) % ranks, (rank + 1) % ranks}, weights[2] = {1, 1};
    const struct options own = in_short_blocks(options);
    struct argument a = {.rank = rank, .ranks = ranks};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, ends, weights, 2, ends, weights, MPI_INFO_NULL, 0, &a.ring);
    for (int operation = BARRIER; operation < OPERATIONS_ALL; operation++) {
        if (!is_listed(options->operations, names[operation]))
            continue;
        const int sizes = operation == BARRIER ? 1 : options->bytes.length;
        for (int i = 0; i < sizes; i++) {
            const long bytes = operation == BARRIER ? 0 : options->bytes.value[i];
            const struct what what = {"coll", "none", "none", names[operation], bytes, 1, 0};
            a.operation = operation;
            a.count = (int)(bytes / (long)sizeof(double));
            a.from = (double *)pages(bytes * ranks);
            a.into = (double *)pages(bytes * ranks);
            check_calls(&a);
            measure(&own, &what, calls, &a, 1);
            free(a.from);
            free(a.into);
        }
    }
    MPI_Comm_free(&a.ring);
}
