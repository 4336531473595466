/* Threads access the attached memory of a dynamic window at the same time.
   ranks 2
   link -pthread */
#include "threads.h"

enum { THREADS = 4, ROUNDS = 100 };

static MPI_Win win;
static MPI_Aint theirs;
static int peer;

static void *work(void *data) {
    int at = *(int *)data, got;
    for (int i = 0; i < ROUNDS; i++) {
        got = -1;
        OK(MPI_Get(&got, 1, MPI_INT, peer, MPI_Aint_add(theirs, at * (MPI_Aint)sizeof(int)), 1, MPI_INT, win));
        OK(MPI_Win_flush(peer, win));
        CHECK(got == 100 * peer + at);
    }
    return NULL;
}

int main(void) {
    int memory[THREADS];
    MPI_Aint mine;
    start_with_threads();
    int me = rank_of(MPI_COMM_WORLD);
    peer = !me;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int i = 0; i < THREADS; i++) memory[i] = 100 * me + i;
    OK(MPI_Win_attach(win, memory, sizeof memory));
    OK(MPI_Get_address(memory, &mine));
    OK(MPI_Sendrecv(&mine, 1, MPI_AINT, peer, 0, &theirs, 1, MPI_AINT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Win_lock_all(0, win));
    start_threads(THREADS, work);
    join_threads(THREADS);
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_detach(win, memory));
    OK(MPI_Win_free(&win));
    return finish();
}
