/* Threads of the sender fill partitions and mark them ready, each its own; threads of the receiver test whether theirs
   have arrived.
   ranks 2
   link -pthread */
#include "threads.h"

enum { THREADS = 4, PARTS = 4, LEN = 500, ROUNDS = 5 };

static MPI_Request request;
static int data[THREADS * PARTS][LEN], rank, round_number, bad[THREADS];

static void *work(void *argument) {
    int me = *(int *)argument;
    for (int i = me; i < THREADS * PARTS; i += THREADS) {
        if (rank == 0) {
            for (int j = 0; j < LEN; j++) data[i][j] = round_number * 1000000 + i * LEN + j;
            if (MPI_Pready(i, request) != MPI_SUCCESS) bad[me]++;
        } else {
            int flag = 0;
            while (!flag)
                if (MPI_Parrived(request, i, &flag) != MPI_SUCCESS) bad[me]++, flag = 1;
            for (int j = 0; j < LEN; j++) bad[me] += data[i][j] != round_number * 1000000 + i * LEN + j;
        }
    }
    return NULL;
}

int main(void) {
    start_with_threads();
    rank = rank_of(MPI_COMM_WORLD);
    if (rank == 0)
        OK(MPI_Psend_init(data, THREADS * PARTS, LEN, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    else
        OK(MPI_Precv_init(data, THREADS * PARTS, LEN, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    for (round_number = 0; round_number < ROUNDS; round_number++) {
        OK(MPI_Start(&request));
        start_threads(THREADS, work);
        join_threads(THREADS);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    for (int i = 0; i < THREADS; i++) CHECK(bad[i] == 0);
    OK(MPI_Request_free(&request));
    return finish();
}
