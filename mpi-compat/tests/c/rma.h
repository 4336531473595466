/* What programs of one-sided communication share: a window of integers, all -1 at first, and short forms of calls on it. */
#ifndef RMA_H
#define RMA_H

#include "check.h"

static int me, size;
static MPI_Win win;

/* n integers at each rank. */
static inline int *begin(int n) {
    int *memory;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(n * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    for (int i = 0; i < n; i++) memory[i] = -1;
    MPI_Barrier(MPI_COMM_WORLD);
    return memory;
}

static inline int done(void) {
    OK(MPI_Win_free(&win));
    CHECK(win == MPI_WIN_NULL);
    return finish();
}

static inline int right(void) { return (me + 1) % size; }

static inline int left(void) { return (me + size - 1) % size; }

#define PUT(from, n, rank, at) OK(MPI_Put(from, n, MPI_INT, rank, at, n, MPI_INT, win))
#define GET(into, n, rank, at) OK(MPI_Get(into, n, MPI_INT, rank, at, n, MPI_INT, win))
#define ADD(from, n, rank, at) OK(MPI_Accumulate(from, n, MPI_INT, rank, at, n, MPI_INT, MPI_SUM, win))
#define FENCE() OK(MPI_Win_fence(0, win))

/* Ranks of the communicator as a group. */
static inline MPI_Group group_of(int n, const int *ranks) {
    MPI_Group world, group;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, n, ranks, &group));
    OK(MPI_Group_free(&world));
    return group;
}

#endif
