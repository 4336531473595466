/* Threads that test again and again do not keep others out, more threads than cores.
   ranks 2
   link -pthread */
#include "check.h"
#include <pthread.h>

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
    pthread_t threads[THREADS];
    int numbers[THREADS], level;
    OK(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level));
    me = rank_of(MPI_COMM_WORLD);
    other = 1 - me;
    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        pthread_create(&threads[t], NULL, run, &numbers[t]);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        CHECK(wrong[t] == 0);
    }
    return finish();
}
