/* Shared by programs with several threads that call MPI. */
#ifndef THREADS_H
#define THREADS_H

#include "check.h"
#include <pthread.h>

/* The greatest number of threads of a program. */
enum { MOST_THREADS = 16 };

static pthread_t threads[MOST_THREADS];
static int thread_numbers[MOST_THREADS];

static inline void start_with_threads(void) {
    int level;
    OK(MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level));
    CHECK(level == MPI_THREAD_MULTIPLE);
}

/* Starts threads, each of which gets the address of its number. */
static inline void start_threads(int n, void *(*run)(void *)) {
    for (int t = 0; t < n; t++) {
        thread_numbers[t] = t;
        pthread_create(&threads[t], NULL, run, &thread_numbers[t]);
    }
}

static inline void join_threads(int n) {
    for (int t = 0; t < n; t++) pthread_join(threads[t], NULL);
}

#endif
