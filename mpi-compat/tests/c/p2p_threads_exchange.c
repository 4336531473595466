/* Threads of each rank exchange messages at the same time, each with its own tag, small and large.
   ranks 2
   link -pthread */
#include "threads.h"

enum { THREADS = 4, ROUNDS = 200, LARGE = 20000 };

static int me, other, wrong[THREADS];

static void *run(void *which) {
    int t = *(int *)which, *data = malloc(LARGE * sizeof(int)), *got = malloc(LARGE * sizeof(int));
    for (int round = 0; round < ROUNDS; round++) {
        int n = round % 20 == 19 ? LARGE : 1;
        MPI_Status status;
        fill(data, n * sizeof(int), me + t + round);
        if (round % 2) {
            wrong[t] += MPI_Sendrecv(data, n, MPI_INT, other, t, got, LARGE, MPI_INT, other, t, MPI_COMM_WORLD, &status);
        } else {
            MPI_Request requests[2];
            wrong[t] += MPI_Irecv(got, LARGE, MPI_INT, other, t, MPI_COMM_WORLD, &requests[0]);
            wrong[t] += MPI_Isend(data, n, MPI_INT, other, t, MPI_COMM_WORLD, &requests[1]);
            wrong[t] += MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        }
        wrong[t] += !is_filled(got, n * sizeof(int), other + t + round);
    }
    free(data);
    free(got);
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
