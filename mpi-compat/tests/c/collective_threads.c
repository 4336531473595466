/* Threads call collectives of different communicators at the same time, in any order.
   ranks 2 3
   link -pthread */
#include "threads.h"

enum { THREADS = 3, ROUNDS = 40 };

static MPI_Comm comms[THREADS];
static int wrong[THREADS], size;

static void *run(void *which) {
    int t = *(int *)which, me = rank_of(comms[t]);
    for (int round = 0; round < ROUNDS; round++) {
        int value = me + round, sum = 0;
        MPI_Barrier(comms[t]);
        MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comms[t]);
        wrong[t] += sum != size * round + size * (size - 1) / 2;
        MPI_Bcast(&value, 1, MPI_INT, round % size, comms[t]);
        wrong[t] += value != round % size + round;
    }
    return NULL;
}

int main(void) {
    start_with_threads();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int t = 0; t < THREADS; t++) OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[t]));
    start_threads(THREADS, run);
    join_threads(THREADS);
    for (int t = 0; t < THREADS; t++) {
        CHECK(wrong[t] == 0);
        OK(MPI_Comm_free(&comms[t]));
    }
    return finish();
}
