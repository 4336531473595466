/* A thread has an error while another ends the process, whose exit handler waits for that thread: the process ends with
   the first code.
   code 7
   says another error while the process exits with code 7
   not on peers: what they do is not promised */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static pthread_t thread;
static atomic_int ending;

static void *run(void *unused) {
    MPI_Datatype type = MPI_INT;
    while (!ending) usleep(1000);
    MPI_Type_free(&type);
    return unused;
}

static void wait_for_it(void) {
    ending = 1;
    pthread_join(thread, NULL);
}

int main(void) {
    int provided;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    pthread_create(&thread, NULL, run, NULL);
    atexit(wait_for_it);
    MPI_Abort(MPI_COMM_WORLD, 7);
    return 0;
}
