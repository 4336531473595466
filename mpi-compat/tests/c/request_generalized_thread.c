/* A thread completes a generalized request that another thread waits for.
   link -pthread */
#include "check.h"
#include <pthread.h>

static int query(void *extra, MPI_Status *status) {
    MPI_Status_set_elements(status, MPI_INT, *(int *)extra);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int freed(void *extra) {
    *(int *)extra += 100;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) {
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

static void *run(void *request) {
    MPI_Grequest_complete(*(MPI_Request *)request);
    return NULL;
}

int main(void) {
    int level, count;
    OK(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level));
    for (int i = 0; i < 20; i++) {
        int extra = i;
        MPI_Request request, other;
        MPI_Status status;
        pthread_t thread;
        OK(MPI_Grequest_start(query, freed, cancel, &extra, &request));
        other = request;
        pthread_create(&thread, NULL, run, &other);
        OK(MPI_Wait(&request, &status));
        OK(MPI_Get_count(&status, MPI_INT, &count));
        CHECK(count == i && extra == i + 100);
        pthread_join(thread, NULL);
    }
    return finish();
}
