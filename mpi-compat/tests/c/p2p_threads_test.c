/* Threads that call MPI_Test in a loop do not starve others, also with more threads than cores.
   ranks 2
   link -pthread */
#include "threads.h"

enum { THREADS = 4, ROUNDS = 50 };

static int me, other, wrong[THREADS];

static void *run(void *which) {
    int t = *(int *)which;
    for (int round = 0; round < ROUNDS; round++) {
        int out = 1000 * t + round, in = -1, flag = 0;
        MPI_Request request;
        MPI_Irecv(&in, 1, MPI_INT, other, t, MPI_COMM_WORLD, &request);
        MPI_Send(&out, 1, MPI_INT, other, t, MPI_COMM_WORLD);
        while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        wrong[t] += in != out;
    }
    return NULL;
}

int main(void) {
    start_with_threads();
    me = rank_of(MPI_COMM_WORLD);
    other = 1 - me;
    start_threads(THREADS, run);
    join_threads(THREADS);
    for (int t = 0; t < THREADS; t++) CHECK(wrong[t] == 0);
    return finish();
}
