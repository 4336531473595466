/* Windows over a few bytes of the allocator's memory are mapped whole: the other bytes of their pages stay as they are and
   are used meanwhile, several windows share a page, and are freed in any order.
   ranks 1 2
   link -pthread
   not on peers: the target of an operation need not call MPI */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "rma.h"

enum { BLOCKS = 60 };

static const size_t lengths[] = {8, 100, 5000, 10 * 1024};

/* Whether the process has a thread that serves memory which is not mapped. */
static int has_agent(void) {
    int found = 0;
    char path[300], name[32];
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file)) found |= strncmp(name, "farside-agent", 13) == 0;
        if (file) fclose(file);
    }
    closedir(folder);
    return found;
}

static MPI_Win window_over(void *memory, size_t len) {
    MPI_Win of;
    OK(MPI_Win_create(memory, (MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &of));
    return of;
}

/* Puts twice to the other rank, gets what was put, then adds and looks there. */
static void used(MPI_Win of, unsigned char *memory, size_t len, int seed) {
    unsigned char *data = malloc(len), *got = malloc(len);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, of));
    for (int first = 1; first >= 0; first--) {
        fill(data, len, seed + 40 * first + me);
        OK(MPI_Put(data, (int)len, MPI_BYTE, right(), 0, (int)len, MPI_BYTE, of));
        OK(MPI_Win_flush(right(), of));
        OK(MPI_Get(got, (int)len, MPI_BYTE, right(), 0, (int)len, MPI_BYTE, of));
        OK(MPI_Win_flush(right(), of));
        CHECK(is_filled(got, len, seed + 40 * first + me));
    }
    data[len - 1] = 3;
    OK(MPI_Accumulate(&data[len - 1], 1, MPI_UNSIGNED_CHAR, right(), len - 1, 1, MPI_UNSIGNED_CHAR, MPI_SUM, of));
    OK(MPI_Win_unlock(right(), of));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(is_filled(memory, len - 1, seed + left()));
    CHECK(memory[len - 1] == (unsigned char)(byte_at(seed + left(), len - 1) + 3));
    MPI_Barrier(MPI_COMM_WORLD);
    free(data);
    free(got);
}

/* Blocks beside each other; windows over every third of them. */
static void among_others(size_t len, int forwards) {
    unsigned char *blocks[BLOCKS];
    MPI_Win wins[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) fill(blocks[i] = malloc(len), len, i);
    for (int i = 0; i < BLOCKS; i += 3) {
        wins[i] = window_over(blocks[i], len);
        CHECK(is_filled(blocks[i], len, i));
        /* The allocator uses the bytes between. */
        free(blocks[i + 1]);
        blocks[i + 1] = NULL;
        fill(blocks[i + 2], len, i + 50);
    }
    for (int i = 0; i < BLOCKS; i += 3) fill(blocks[i + 1] = malloc(len), len, i + 70);
    for (int i = 0; i < BLOCKS; i += 3) used(wins[i], blocks[i], len, i);
    for (int k = 0; k < BLOCKS; k += 3) {
        int i = forwards ? k : BLOCKS - 3 - k, last = forwards ? BLOCKS - 3 : 0;
        OK(MPI_Win_free(&wins[i]));
        if (i != last) used(wins[last], blocks[last], len, k + 9);
    }
    for (int i = 0; i < BLOCKS; i += 3) CHECK(is_filled(blocks[i + 1], len, i + 70) && is_filled(blocks[i + 2], len, i + 50));
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

/* A put reaches memory of a rank that computes. */
static void while_target_computes(void) {
    volatile int *memory = calloc(2, sizeof(int));
    MPI_Win of = window_over((void *)memory, 2 * sizeof(int));
    int one = 1;
    OK(MPI_Win_lock_all(0, of));
    if (me == 0) {
        OK(MPI_Put(&one, 1, MPI_INT, right(), 4, 1, MPI_INT, of));
        OK(MPI_Win_flush_all(of));
    }
    if (me == 1 % size)
        while (memory[1] != 1) {}
    OK(MPI_Win_unlock_all(of));
    OK(MPI_Win_free(&of));
    free((void *)memory);
}

/* Messages from and to buffers beside the bytes of a window. */
static void beside_buffers(void) {
    unsigned char *first = malloc(60000), *bytes = malloc(40), *second = malloc(60000);
    MPI_Win of = window_over(bytes, 40);
    for (int i = 0; i < 6; i++) {
        fill(first, 60000, i + me);
        MPI_Sendrecv(first, 60000, MPI_BYTE, right(), 0, second, 60000, MPI_BYTE, left(), 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        CHECK(is_filled(second, 60000, i + left()));
        used(of, bytes, 40, i);
        if (i == 3) {
            free(second);
            second = malloc(60000);
        }
    }
    OK(MPI_Win_free(&of));
    CHECK(is_filled(first, 60000, 5 + me) && is_filled(second, 60000, 5 + left()));
    free(first);
    free(bytes);
    free(second);
}

static atomic_int stop;
static volatile long *beside;

static void *store(void *lost) {
    for (long k = 1; !stop; k++) {
        for (int i = 0; i < 8; i++) beside[i] = k;
        for (int i = 0; i < 8; i++) *(long *)lost += beside[i] != k;
    }
    return NULL;
}

/* Another thread stores to bytes beside those of windows that are made and freed. */
static void beside_stores(void) {
    pthread_t thread;
    long lost = 0;
    unsigned char *before = malloc(100);
    beside = malloc(8 * sizeof(long));
    unsigned char *after = malloc(100);
    for (int round = 0; round < 3; round++) {
        MPI_Win early = window_over(before, 100);
        stop = 0;
        pthread_create(&thread, NULL, store, &lost);
        for (int i = 0; i < rounds(40) + 1; i++) {
            MPI_Win of = window_over(after, 100);
            used(of, after, 100, i);
            used(early, before, 100, i);
            OK(MPI_Win_free(&of));
        }
        stop = 1;
        pthread_join(thread, NULL);
        OK(MPI_Win_free(&early));
    }
    CHECK(lost == 0);
    free(before);
    free((void *)beside);
    free(after);
}

int main(void) {
    const char *fault = getenv("FARSIDE_TEST_FAULT"), *device = getenv("FARSIDE_DEVICE");
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < COUNT(lengths); i++) {
        among_others(lengths[i], 1);
        among_others(lengths[i], 0);
    }
    beside_buffers();
    while_target_computes();
    if (!getenv("FARSIDE_TEST_NODES") && (!device || strcmp(device, "shm") == 0) && (!fault || strcmp(fault, "none") == 0))
        CHECK(!has_agent());
    beside_stores();
    for (int i = 0; i < COUNT(lengths); i++) among_others(lengths[i], i % 2);
    return finish();
}
