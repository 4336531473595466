/* Shared by programs of one-sided communication: a window of integers, all -1 at first, and short forms of calls on it. */
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

/* Starts; from here on `me` and `size` are those of the ranks that share memory with this one. */
static inline MPI_Comm begin_sharing(void) {
    start();
    MPI_Comm node = sharing();
    me = rank_of(node);
    MPI_Comm_size(node, &size);
    return node;
}

/* Each rank in turn, twice, overwrites by puts `bytes` bytes at a place of every rank's window, which is `memory` at this
   one. What is there after each is that, no put of before comes once more. */
static inline void overwritten_at(MPI_Win of, MPI_Comm comm, void *memory, MPI_Aint at, MPI_Aint bytes) {
    int ranks, here = rank_of(comm);
    MPI_Comm_size(comm, &ranks);
    MPI_Aint mine[2] = {at, bytes}, *all = malloc(ranks * sizeof mine), most = 0;
    OK(MPI_Allgather(mine, 2, MPI_AINT, all, 2, MPI_AINT, comm));
    for (int r = 0; r < ranks; r++) most = all[2 * r + 1] > most ? all[2 * r + 1] : most;
    unsigned char *data = malloc(most + 1);
    for (int turn = 0; turn < 2 * ranks; turn++) {
        OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, of));
        memset(data, turn + 100, most + 1);
        for (int r = 0; r < ranks && here == turn % ranks; r++)
            OK(MPI_Put(data, (int)all[2 * r + 1], MPI_BYTE, r, all[2 * r], (int)all[2 * r + 1], MPI_BYTE, of));
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, of));
        CHECK(bytes == 0 || memcmp(memory, data, bytes) == 0);
    }
    free(data);
    free(all);
}

/* All of a window that has memory, of a communicator. */
static inline void overwritten(MPI_Win of, MPI_Comm comm) {
    void *base;
    MPI_Aint *bytes;
    int flag;
    OK(MPI_Win_get_attr(of, MPI_WIN_BASE, &base, &flag));
    OK(MPI_Win_get_attr(of, MPI_WIN_SIZE, &bytes, &flag));
    overwritten_at(of, comm, base, 0, *bytes);
}

/* The window has been overwritten, and is freed. */
static inline void end_window(MPI_Win *of) {
    overwritten(*of, MPI_COMM_WORLD);
    OK(MPI_Win_free(of));
}

static inline int done(void) {
    overwritten(win, MPI_COMM_WORLD);
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

/* An Info object with one key. */
static inline MPI_Info info_with(const char *key, const char *value) {
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, key, value));
    return info;
}

/* Whether a window reports that it uses a hint, with this value unless `value` is NULL. */
static inline int has_hint(MPI_Win of, const char *key, const char *value) {
    MPI_Info info;
    char text[MPI_MAX_INFO_VAL];
    int len = sizeof text, flag;
    OK(MPI_Win_get_info(of, &info));
    OK(MPI_Info_get_string(info, key, &len, text, &flag));
    OK(MPI_Info_free(&info));
    return flag && (value == NULL || strcmp(text, value) == 0);
}

#endif
