/* A thread stores to the memory of a window, and to other memory, under a lock that handlers of the program hold over
   the fork: the child sees both as they were at one moment.
   ranks 1 2
   link -pthread
   not on peers: not promised */
#include <pthread.h>
#include <stdatomic.h>

#include "fork.h"
#include "rma.h"

enum { WORDS = 128 * 512, STEP = 512 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile long *memory, count;
static atomic_int stop;

static void hold(void) { pthread_mutex_lock(&lock); }

static void let_go(void) { pthread_mutex_unlock(&lock); }

static void *store(void *unused) {
    while (!stop) {
        hold();
        count++;
        for (int i = 0; i < WORDS; i += STEP) memory[i] = count;
        let_go();
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    start();
    memory = calloc(WORDS, sizeof(long));
    OK(MPI_Win_create((void *)memory, WORDS * sizeof(long), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    overwritten(win, MPI_COMM_WORLD);
    CHECK(pthread_atfork(hold, let_go, let_go) == 0);
    pthread_create(&thread, NULL, store, NULL);
    while (count == 0) {}
    for (int k = 0; k < rounds(100) + 1; k++) {
        Child child;
        if (begin_child(&child)) {
            int wrong = 0;
            for (int i = 0; i < WORDS; i += STEP) wrong += memory[i] != count;
            CHECK(wrong == 0);
            end_child();
        }
        CHECK(ended_well(&child));
    }
    stop = 1;
    pthread_join(thread, NULL);
    end_window(&win);
    free((void *)memory);
    return finish();
}
