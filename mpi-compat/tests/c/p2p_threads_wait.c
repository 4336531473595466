/* Threads that wait in different calls are woken by what another thread of the same rank does.
   link -pthread */
#include "check.h"
#include <pthread.h>

enum { THREADS = 5 };

static int got[THREADS];

static void *run(void *which) {
    int t = *(int *)which, index;
    MPI_Request request;
    MPI_Message message;
    switch (t) {
    case 0:
        MPI_Recv(&got[t], 1, MPI_INT, 0, t, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        break;
    case 1:
        MPI_Irecv(&got[t], 1, MPI_INT, 0, t, MPI_COMM_SELF, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    case 2:
        MPI_Probe(0, t, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        MPI_Recv(&got[t], 1, MPI_INT, 0, t, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        break;
    case 3:
        MPI_Mprobe(0, t, MPI_COMM_SELF, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(&got[t], 1, MPI_INT, &message, MPI_STATUS_IGNORE);
        break;
    case 4:
        MPI_Irecv(&got[t], 1, MPI_INT, 0, t, MPI_COMM_SELF, &request);
        MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
        break;
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS], level;
    OK(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level));
    for (int round = 0; round < 30; round++) {
        memset(got, 0, sizeof got);
        for (int t = 0; t < THREADS; t++) {
            numbers[t] = t;
            pthread_create(&threads[t], NULL, run, &numbers[t]);
        }
        for (int i = 0; i < THREADS; i++) {
            int t = (i * 2 + round) % THREADS, value = 100 * round + t + 1;
            OK(MPI_Ssend(&value, 1, MPI_INT, 0, t, MPI_COMM_SELF));
        }
        for (int t = 0; t < THREADS; t++) {
            pthread_join(threads[t], NULL);
            CHECK(got[t] == 100 * round + t + 1);
        }
    }
    return finish();
}
