/* Threads that wait in different calls are woken by operations of another thread of the same rank.
   link -pthread */
#include "threads.h"

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
    start_with_threads();
    for (int round = 0; round < 30; round++) {
        memset(got, 0, sizeof got);
        start_threads(THREADS, run);
        for (int i = 0; i < THREADS; i++) {
            int t = (i * 2 + round) % THREADS, value = 100 * round + t + 1;
            OK(MPI_Ssend(&value, 1, MPI_INT, 0, t, MPI_COMM_SELF));
        }
        join_threads(THREADS);
        for (int t = 0; t < THREADS; t++) CHECK(got[t] == 100 * round + t + 1);
    }
    return finish();
}
