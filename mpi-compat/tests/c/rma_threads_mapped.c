/* Threads of each rank put, get and update elements of windows in one epoch, and flush, while the main thread makes and
   frees other windows.
   ranks 2 3
   link -pthread */
#include "rma.h"
#include "threads.h"

enum { THREADS = 8, ROUNDS = 300, BLOCK = 16, CELLS = THREADS * BLOCK };

/* At each rank: a block for each thread of the left neighbour, and then what all threads update. */
enum { COUNTER = CELLS, SWAPPED, SUMS, WORDS = SUMS + BLOCK };

static int wrong[THREADS];

static void *run(void *which) {
    int t = *(int *)which, peer = right(), bad = 0;
    long mine[BLOCK], back[BLOCK], one = 1, old, last = -1, ones[BLOCK];
    for (int i = 0; i < BLOCK; i++) ones[i] = i;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCK; i++) mine[i] = me * 1000000 + t * 10000 + round * 10 + i % 10;
        bad += MPI_Put(mine, BLOCK, MPI_LONG, peer, t * BLOCK, BLOCK, MPI_LONG, win) != MPI_SUCCESS;
        bad += MPI_Win_flush(peer, win) != MPI_SUCCESS;
        memset(back, 0, sizeof back);
        bad += MPI_Get(back, BLOCK, MPI_LONG, peer, t * BLOCK, BLOCK, MPI_LONG, win) != MPI_SUCCESS;
        bad += MPI_Win_flush_local(peer, win) != MPI_SUCCESS;
        bad += memcmp(mine, back, sizeof back) != 0;
        bad += MPI_Accumulate(ones, BLOCK, MPI_LONG, peer, SUMS, BLOCK, MPI_LONG, MPI_SUM, win) != MPI_SUCCESS;
        bad += MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, COUNTER, MPI_SUM, win) != MPI_SUCCESS;
        bad += MPI_Win_flush_all(win) != MPI_SUCCESS;
        bad += old <= last;
        last = old;
    }
    /* Additions by compare-and-swap. */
    for (int round = 0; round < ROUNDS / 10; round++) {
        long expected = 0, desired, found;
        for (;;) {
            desired = expected + 1;
            MPI_Compare_and_swap(&desired, &expected, &found, MPI_LONG, 0, SWAPPED, win);
            MPI_Win_flush(0, win);
            if (found == expected) break;
            expected = found;
        }
    }
    wrong[t] = bad;
    return NULL;
}

int main(void) {
    long *words;
    start_with_threads();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(WORDS * sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &win));
    memset(words, 0, WORDS * sizeof *words);
    for (int threads = 2; threads <= THREADS; threads += THREADS - 2) {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Win_lock_all(0, win));
        start_threads(threads, run);
        for (int round = 0; round < 20; round++) {
            long own = 0, value = round;
            MPI_Win other;
            OK(MPI_Win_create(&own, sizeof own, 1, MPI_INFO_NULL, MPI_COMM_SELF, &other));
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, other));
            OK(MPI_Put(&value, 1, MPI_LONG, 0, 0, 1, MPI_LONG, other));
            OK(MPI_Win_unlock(0, other));
            CHECK(own == value);
            OK(MPI_Win_free(&other));
        }
        join_threads(threads);
        OK(MPI_Win_unlock_all(win));
        for (int t = 0; t < threads; t++) CHECK(wrong[t] == 0);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    for (int i = 0; i < BLOCK; i++) CHECK(words[SUMS + i] == (long)i * ROUNDS * (2 + THREADS));
    if (me == 0) {
        CHECK(words[COUNTER] == (long)size * ROUNDS * (2 + THREADS));
        CHECK(words[SWAPPED] == (long)size * (ROUNDS / 10) * (2 + THREADS));
    }
    OK(MPI_Win_unlock(me, win));
    end_window(&win);
    return finish();
}
