/* Memory of a window is given to the system after its last epoch, and used for something else, before the window is freed: the
   program is at fault, but the window can be freed, and what is there now stays.
   ranks 2
   env FARSIDE_LOG=warn
   says were unmapped before the window was freed
   not over verbs: no pages of the program are moved */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "rma.h"

enum { LEN = 1 << 20, PAGE = 4096 };

static char *map(void *at, size_t len, int flags) {
    return mmap(at, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

/* Puts into the memory of the other rank, in an epoch. */
static MPI_Win used(char *memory, int peer) {
    MPI_Win win;
    char value = 3;
    OK(MPI_Win_create(memory, LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    overwritten_at(win, MPI_COMM_WORLD, memory + LEN / 2, LEN / 2, 1);
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_CHAR, peer, LEN / 2, 1, MPI_CHAR, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    CHECK(memory[LEN / 2] == 3);
    return win;
}

int main(void) {
    start();
    int peer = 1 - rank_of(MPI_COMM_WORLD);

    /* The whole memory. */
    char *memory = map(NULL, LEN, 0);
    MPI_Win win = used(memory, peer);
    munmap(memory, LEN);
    OK(MPI_Win_free(&win));

    /* Other memory is mapped there. */
    memory = map(NULL, LEN, 0);
    win = used(memory, peer);
    CHECK(map(memory, LEN, MAP_FIXED) == memory);
    memset(memory, 9, LEN);
    OK(MPI_Win_free(&win));
    for (int i = 0; i < LEN; i++) CHECK(memory[i] == 9);

    /* One part of it; the rest is unchanged. */
    memset(memory, 4, LEN);
    win = used(memory, peer);
    munmap(memory + 3 * PAGE, 2 * PAGE);
    CHECK(map(memory + 4 * PAGE, PAGE, MAP_FIXED) == memory + 4 * PAGE);
    memory[4 * PAGE] = 8;
    OK(MPI_Win_free(&win));
    CHECK(memory[3 * PAGE - 1] == 4 && memory[4 * PAGE] == 8 && memory[5 * PAGE] == 4 && memory[LEN / 2] == 3);
    munmap(memory, LEN);

    /* A large block of the allocator. */
    memory = malloc(64 * LEN);
    win = used(memory, peer);
    free(memory);
    OK(MPI_Win_free(&win));

    /* Attached memory. */
    memory = map(NULL, LEN, 0);
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_attach(win, memory, LEN));
    MPI_Barrier(MPI_COMM_WORLD);
    munmap(memory, LEN);
    OK(MPI_Win_detach(win, memory));
    OK(MPI_Win_free(&win));
    return finish();
}
