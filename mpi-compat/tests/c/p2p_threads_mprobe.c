/* Threads that take messages by matched probes get each message once.
   ranks 2
   link -pthread */
#include "threads.h"

enum { THREADS = 3, EACH = 300, N = THREADS * EACH };

static int seen[N];

static void *run(void *unused) {
    (void)unused;
    for (int i = 0; i < EACH; i++) {
        MPI_Message message;
        MPI_Status status;
        int value;
        MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(&value, 1, MPI_INT, &message, &status);
        if (value >= 0 && value < N && status.MPI_TAG == value) __atomic_fetch_add(&seen[value], 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

int main(void) {
    int wrong = 0;
    start_with_threads();
    if (rank_of(MPI_COMM_WORLD) == 0) {
        for (int i = 0; i < N; i++) OK(MPI_Send(&i, 1, MPI_INT, 1, i, MPI_COMM_WORLD));
    } else {
        start_threads(THREADS, run);
        join_threads(THREADS);
        for (int i = 0; i < N; i++) wrong += seen[i] != 1;
        CHECK(wrong == 0);
    }
    return finish();
}
