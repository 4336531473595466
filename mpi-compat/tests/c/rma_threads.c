/* Threads of a rank: one waits in a fence, while others exchange messages that the other ranks need before they call
   theirs; then all count in one window.
   ranks 2 3
   link -pthread */
#include "rma.h"
#include "threads.h"

enum { THREADS = 3, ROUNDS = 20 };

static MPI_Win counter_win;
static int *base, *counter;

static void *talk(void *unused) {
    (void)unused;
    int right = (me + 1) % size, left = (me + size - 1) % size, value;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Request request;
        OK(MPI_Isend(&i, 1, MPI_INT, right, 1, MPI_COMM_WORLD, &request));
        OK(MPI_Recv(&value, 1, MPI_INT, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(value == i);
    }
    /* Only now may rank 0 call its fence. */
    OK(MPI_Sendrecv(&me, 1, MPI_INT, right, 2, &value, 1, MPI_INT, left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(value == left);
    return NULL;
}

static void *count(void *unused) {
    (void)unused;
    int one = 1, old, last = -1;
    for (int i = 0; i < ROUNDS; i++) {
        OK(MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 0, MPI_SUM, counter_win));
        OK(MPI_Win_flush(0, counter_win));
        CHECK(old > last);
        last = old;
    }
    return NULL;
}

int main(void) {
    start_with_threads();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(8, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_allocate(8, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &counter_win));
    *counter = 0;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&me, 1, MPI_INT, (me + 1) % size, 0, 1, MPI_INT, win));
    start_threads(1, talk);
    if (me == 0) join_threads(1);
    OK(MPI_Win_fence(0, win));
    if (me != 0) join_threads(1);
    CHECK(*base == (me + size - 1) % size);
    OK(MPI_Win_lock_all(0, counter_win));
    start_threads(THREADS, count);
    join_threads(THREADS);
    OK(MPI_Win_unlock_all(counter_win));
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) CHECK(*counter == size * THREADS * ROUNDS);
    end_window(&win);
    OK(MPI_Win_free(&counter_win));
    return finish();
}
