/* Errors of operations that threads make at the same time are those of one thread.
   ranks 2
   link -pthread
   not on peers: other libraries check fewer of them */
#include "rma.h"
#include "threads.h"

static MPI_Win freed;

static void *run(void *which) {
    int peer = 1 - me;
    long one = 1, old = 0;
    (void)which;
    for (int round = 0; round < 20; round++) {
        OK(MPI_Put(&one, 1, MPI_LONG, peer, 1, 1, MPI_LONG, win));
        FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&one, 1, MPI_LONG, peer, 4, 1, MPI_LONG, win));
        FAILS(MPI_ERR_RMA_RANGE, MPI_Get(&old, 1, MPI_LONG, peer, 1 << 20, 1, MPI_LONG, win));
        FAILS(MPI_ERR_RANK, MPI_Put(&one, 1, MPI_LONG, 2, 0, 1, MPI_LONG, win));
        FAILS(MPI_ERR_OP, MPI_Fetch_and_op(&one, &old, MPI_DOUBLE, peer, 0, MPI_BXOR, win));
        FAILS(MPI_ERR_TYPE, MPI_Compare_and_swap(&one, &one, &old, MPI_DOUBLE, peer, 0, win));
        FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush(me, win));
        FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&one, 1, MPI_LONG, me, 0, 1, MPI_LONG, win));
        FAILS(MPI_ERR_WIN, MPI_Put(&one, 1, MPI_LONG, peer, 0, 1, MPI_LONG, freed));
        FAILS(MPI_ERR_WIN, MPI_Win_flush_all(freed));
        OK(MPI_Put(&one, 1, MPI_LONG, MPI_PROC_NULL, 0, 1, MPI_LONG, win));
        OK(MPI_Win_flush(peer, win));
    }
    return NULL;
}

int main(void) {
    long words[4] = {0}, other = 0, value = 7;
    start_with_threads();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_create(words, sizeof words, sizeof words[0], MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_create(&other, sizeof other, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &freed));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    overwritten(win, MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, me, 0, win));
    memset(words, 0, sizeof words);
    OK(MPI_Win_unlock(me, win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    MPI_Win copy = freed;
    OK(MPI_Win_free(&freed));
    freed = copy;
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 1 - me, 0, win));
    start_threads(3, run);
    join_threads(3);
    OK(MPI_Win_unlock(1 - me, win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CHECK(words[0] == 0 && words[1] == 1);
    /* After the epoch, operations are refused in any thread; a fence opens one again. */
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_LONG, 1 - me, 0, 1, MPI_LONG, win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_LONG, 1 - me, 2, 1, MPI_LONG, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush(1 - me, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    CHECK(words[2] == 7);
    end_window(&win);
    return finish();
}
