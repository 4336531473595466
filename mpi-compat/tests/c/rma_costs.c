/* Resources of windows and regions: ten thousand take few descriptors and mappings, and untouched window memory no pages.
   ranks 2
   not on peers: they hold other things
   not over verbs: registered memory is pinned, and each region is a registration */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "rma.h"

enum { MANY = 10000, REGION = 8192, PAGE = 4096 };

struct held {
    long descriptors, mappings, pages;
};

static struct held held(void) {
    struct held held = {0, 0, 0};
    long size, shared;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) held.descriptors++;
    closedir(folder);
    FILE *maps = fopen("/proc/self/maps", "r"), *statm = fopen("/proc/self/statm", "r");
    for (int c; (c = getc(maps)) != EOF;) held.mappings += c == '\n';
    CHECK(fscanf(statm, "%ld %ld %ld", &size, &held.pages, &shared) == 3);
    fclose(maps);
    fclose(statm);
    return held;
}

static void at_most(const char *what, struct held before, struct held most) {
    struct held now = held();
    if (now.descriptors - before.descriptors > most.descriptors || now.mappings - before.mappings > most.mappings ||
        now.pages - before.pages > most.pages) {
        failures++;
        printf("FAILED %s: descriptors %ld to %ld, mappings %ld to %ld, pages %ld to %ld\n", what, before.descriptors,
               now.descriptors, before.mappings, now.mappings, before.pages, now.pages);
    }
}

/* Pages of some memory that exist. */
static long pages_of(void *base, size_t len) {
    static unsigned char exist[(256 << 20) / PAGE];
    long pages = 0;
    CHECK(mincore(base, len, exist) == 0);
    for (size_t i = 0; i < len / PAGE; i++) pages += exist[i] & 1;
    return pages;
}

static void regions(int n, int me, int peer) {
    static int *memory[MANY];
    static MPI_Aint mine[MANY], theirs[MANY];
    MPI_Win win;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int i = 0; i < n; i++) {
        memory[i] = malloc(REGION);
        memset(memory[i], 0, REGION);
        mine[i] = (MPI_Aint)memory[i];
    }
    struct held before = held();
    for (int i = 0; i < n; i++) OK(MPI_Win_attach(win, memory[i], REGION));
    MPI_Sendrecv(mine, n, MPI_AINT, peer, 0, theirs, n, MPI_AINT, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < n; i++) {
        int value = i + me;
        OK(MPI_Put(&value, 1, MPI_INT, peer, theirs[i] + REGION / 2, 1, MPI_INT, win));
        OK(MPI_Win_flush(peer, win));
    }
    OK(MPI_Win_unlock_all(win));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(memory[i][REGION / 8] == i + peer);
    /* Some of them lie at pages by chance: up to 256 are mapped. The table of a thousand attachments has 31 pages, and each
       rank reads that of the other. */
    at_most("regions", before, (struct held){4, 3 * 256 + 40, 500 + n / 2});
    for (int i = 0; i < n; i++) {
        OK(MPI_Win_detach(win, memory[i]));
        free(memory[i]);
    }
    OK(MPI_Win_free(&win));
}

/* Windows that allocate their memory, and such over memory of the program, in turn. A window has a page for its signals, and
   one for its memory if that is allocated; up to 256 that lie at pages by chance are mapped. */
static void windows(MPI_Comm comm, int n, int peer) {
    static MPI_Win wins[MANY];
    static char *memory[MANY];
    int size;
    MPI_Comm_size(comm, &size);
    struct held before = held();
    for (int i = 0; i < n; i++) {
        if (i % 2 == 0) {
            OK(MPI_Win_allocate(100, 1, MPI_INFO_NULL, comm, &memory[i], &wins[i]));
        } else {
            memory[i] = calloc(REGION, 1);
            OK(MPI_Win_create(memory[i], REGION, 1, MPI_INFO_NULL, comm, &wins[i]));
        }
    }
    for (int i = 0; i < n; i += 7) {
        char value = (char)i;
        OK(MPI_Win_fence(0, wins[i]));
        OK(MPI_Put(&value, 1, MPI_CHAR, peer, 50, 1, MPI_CHAR, wins[i]));
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, wins[i]));
        CHECK(memory[i][50] == value);
    }
    at_most("windows", before, (struct held){32, 3 * 256 + 100, 1000 + (size + 4) * n});
    for (int i = 0; i < n; i++) {
        OK(MPI_Win_free(&wins[i]));
        if (i % 2 == 1) free(memory[i]);
    }
}

static void untouched(void) {
    const size_t len = 256 << 20;
    MPI_Win win;
    char *base;
    struct held before = held();
    OK(MPI_Win_allocate((MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    CHECK(pages_of(base, len) == 0);
    base[len / 2] = 1;
    CHECK(pages_of(base, len) == 1);
    OK(MPI_Win_free(&win));
    base = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int round = 0; round < 2; round++) {
        OK(MPI_Win_create(base, (MPI_Aint)len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
        CHECK(pages_of(base, len) == round);
        OK(MPI_Win_free(&win));
        base[len / 4] = 7;
        CHECK(pages_of(base, len) == 1);
    }
    CHECK(base[len / 4] == 7);
    munmap(base, len);
    at_most("untouched memory", before, (struct held){4, 8, 1000});
}

int main(void) {
    /* Fewer descriptors than the windows and regions of any part. */
    struct rlimit few = {128, 128};
    setrlimit(RLIMIT_NOFILE, &few);
    start();
    int me = rank_of(MPI_COMM_WORLD), peer = 1 - me;
    untouched();
    regions(rounds(MANY), me, peer);
    windows(MPI_COMM_SELF, rounds(MANY), 0);
    windows(MPI_COMM_WORLD, rounds(MANY / 10), peer);
    return finish();
}
