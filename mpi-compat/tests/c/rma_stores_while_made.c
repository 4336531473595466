/* Threads and the kernel keep storing to memory while windows over it are made and freed, and it is attached and
   detached: no store is lost, nor a peer's store to memory that another window also has.
   ranks 2
   link -pthread */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "rma.h"

enum { WORDS = 32 * 512, STEP = 64 };

static volatile long *memory;
static atomic_int stop;
static int rounds_done;

static MPI_Win window_over_memory(void) {
    MPI_Win win;
    OK(MPI_Win_create((void *)memory, WORDS * sizeof(long), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    return win;
}

/* Stores, and looks whether what it stored is there. */
static void *store(void *lost) {
    for (long k = 1; !stop; k++) {
        for (long i = 0; i < WORDS; i += STEP) memory[i] = k;
        for (long i = 0; i < WORDS; i += STEP) *(long *)lost += memory[i] != k;
    }
    return NULL;
}

/* The same by the kernel, from a pipe. */
static void *receive(void *lost) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    for (long k = 1; !stop; k++) {
        for (long i = 1; i < WORDS; i += STEP) {
            CHECK(write(ends[1], &k, 8) == 8);
            CHECK(read(ends[0], (void *)&memory[i], 8) == 8);
        }
        for (long i = 1; i < WORDS; i += STEP) *(long *)lost += memory[i] != k;
    }
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

/* Calls a function again and again while both threads store. */
static void while_stored(void (*call)(MPI_Win), MPI_Win win) {
    long lost[2] = {0, 0};
    pthread_t threads[2];
    stop = 0;
    pthread_create(&threads[0], NULL, store, &lost[0]);
    pthread_create(&threads[1], NULL, receive, &lost[1]);
    for (int i = 0; i < rounds_done; i++) call(win);
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(lost[0] == 0);
    CHECK(lost[1] == 0);
}

static void make_and_free(MPI_Win unused) {
    (void)unused;
    MPI_Win win = window_over_memory();
    OK(MPI_Win_free(&win));
}

static void attach_and_detach(MPI_Win win) {
    OK(MPI_Win_attach(win, (void *)memory, WORDS * sizeof(long)));
    OK(MPI_Win_detach(win, (void *)memory));
}

static MPI_Win made;

static void free_made(MPI_Win unused) {
    (void)unused;
    if (made != MPI_WIN_NULL) OK(MPI_Win_free(&made));
    usleep(1000);
}

/* The other rank puts through a window while this one attaches the same memory to another. */
static void put_while_attached(MPI_Win dynamic, int me) {
    MPI_Win win = window_over_memory();
    if (me == 0) {
        for (long k = 1; k <= 20 * rounds_done; k++) {
            long at = (k * STEP) % WORDS, got = 0;
            OK(MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win));
            OK(MPI_Put(&k, 1, MPI_LONG, 1, at, 1, MPI_LONG, win));
            OK(MPI_Win_flush(1, win));
            OK(MPI_Get(&got, 1, MPI_LONG, 1, at, 1, MPI_LONG, win));
            OK(MPI_Win_unlock(1, win));
            CHECK(got == k);
        }
        MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD);
    } else {
        for (int over = 0; !over;) {
            attach_and_detach(dynamic);
            MPI_Iprobe(0, 0, MPI_COMM_WORLD, &over, MPI_STATUS_IGNORE);
        }
        MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    OK(MPI_Win_free(&win));
}

int main(void) {
    MPI_Win dynamic;
    start();
    rounds_done = rounds(200) + 1;
    int me = rank_of(MPI_COMM_WORLD);
    memory = aligned_alloc(4096, WORDS * sizeof(long));
    memset((void *)memory, 0, WORDS * sizeof(long));
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic));

    /* Nothing else runs: pages may move. */
    memory[5] = 5;
    make_and_free(MPI_WIN_NULL);
    CHECK(memory[5] == 5);
    put_while_attached(dynamic, me);

    /* Made while nothing else ran, and freed while threads store. */
    for (int i = 0; i < 5; i++) {
        made = window_over_memory();
        int before = rounds_done;
        rounds_done = 4;
        while_stored(free_made, MPI_WIN_NULL);
        rounds_done = before;
        /* Pages that stayed shared meanwhile are given back. */
        make_and_free(MPI_WIN_NULL);
    }
    while_stored(make_and_free, MPI_WIN_NULL);
    while_stored(attach_and_detach, dynamic);

    /* The values that the threads have stored are there after they have ended. */
    long sum = 0, again = 0;
    for (long i = 0; i < WORDS; i++) sum += memory[i];
    for (int i = 0; i < 3; i++) make_and_free(MPI_WIN_NULL);
    for (long i = 0; i < WORDS; i++) again += memory[i];
    CHECK(sum == again);
    OK(MPI_Win_free(&dynamic));
    free((void *)memory);
    return finish();
}
