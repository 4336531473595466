/* Shared by programs that send and receive again and again in the same memory, and change meanwhile what it is. */
#ifndef BUFFERS_H
#define BUFFERS_H

#include "check.h"
#include <sys/mman.h>

/* Times that memory is used before it is changed: often enough to be taken for memory that is used again. */
enum { TIMES = 5 };

static int me;

static inline void begin_exchanges(void) {
    start();
    me = rank_of(MPI_COMM_WORLD);
}

/* Rank 0 sends from its memory into that of rank 1, and back. */
static inline void exchange_once(void *memory, size_t len, int seed) {
    if (me == 0) {
        fill(memory, len, seed);
        OK(MPI_Send(memory, (int)len, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
        OK(MPI_Recv(memory, (int)len, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else if (me == 1) {
        OK(MPI_Recv(memory, (int)len, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(is_filled(memory, len, seed));
        fill(memory, len, seed + 100);
        OK(MPI_Send(memory, (int)len, MPI_BYTE, 0, 2, MPI_COMM_WORLD));
    }
    CHECK(is_filled(memory, len, seed + 100));
}

static inline void exchange(void *memory, size_t len, int seed) {
    for (int i = 0; i < TIMES; i++) exchange_once(memory, len, seed + i);
}

/* Whether the memory has what the last message of `exchange` with this seed has left. */
static inline int is_exchanged(const void *memory, size_t len, int seed) {
    return is_filled(memory, len, seed + TIMES - 1 + 100);
}

static inline int is_zero(const void *memory, size_t len) {
    const unsigned char *bytes = memory;
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static inline void *map(void *at, size_t len, int flags) {
    void *memory = mmap(at, len, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

#endif
