/* Memory is used for messages again and again; then it is freed, unmapped, moved, given back or replaced, and what is
   there afterwards is used again. What the system and the C library promise of fresh memory holds.
   ranks 2 */
#define _GNU_SOURCE
#include <malloc.h>

#include "buffers.h"

enum { KIB = 1024, PAGE = 4096, MIB = KIB * KIB };

static const size_t lengths[] = {40 * KIB, 100 * KIB + 11, MIB + 3};

static void freed_and_allocated(size_t len) {
    for (int k = 0; k < 4; k++) {
        unsigned char *memory = malloc(len);
        exchange(memory, len, k);
        free(memory);
        memory = calloc(len, 1);
        CHECK(is_zero(memory, len));
        exchange_once(memory, len, k + 30);
        free(memory);
    }
}

static void reallocated(size_t len) {
    unsigned char *memory = malloc(len);
    exchange(memory, len, 1);
    memory = realloc(memory, 3 * len);
    CHECK(is_exchanged(memory, len, 1));
    exchange(memory, 3 * len, 2);
    /* What is allocated meanwhile may get the old place. */
    unsigned char *other = malloc(len);
    fill(other, len, 3);
    CHECK(is_exchanged(memory, 3 * len, 2));
    memory = realloc(memory, len / 2);
    CHECK(is_filled(other, len, 3));
    exchange(other, len, 4);
    exchange(memory, len / 2, 5);
    CHECK(is_exchanged(other, len, 4));
    free(memory);
    CHECK(is_exchanged(other, len, 4));
    free(other);
}

/* Blocks of the heap, which is cut off and grows again. */
static void trimmed(size_t len) {
    CHECK(mallopt(M_MMAP_THRESHOLD, 64 * MIB) == 1);
    for (int k = 0; k < 3; k++) {
        unsigned char *blocks[4];
        for (int i = 0; i < 4; i++) exchange(blocks[i] = malloc(len), len, 10 * i);
        for (int i = 0; i < 4; i++) CHECK(is_exchanged(blocks[i], len, 10 * i));
        free(blocks[1]);
        malloc_trim(0);
        CHECK(is_zero(blocks[1] = calloc(len, 1), len));
        exchange(blocks[1], len, 7);
        for (int i = 3; i >= 0; i--) free(blocks[i]);
        malloc_trim(0);
        unsigned char *all = calloc(4, len);
        CHECK(is_zero(all, 4 * len));
        exchange_once(all, 4 * len, 8);
        free(all);
    }
}

static void mapped_over(size_t len) {
    len = (len + PAGE - 1) / PAGE * PAGE;
    unsigned char *memory = map(NULL, len, MAP_PRIVATE);
    size_t third = len / PAGE / 3 * PAGE;
    exchange(memory, len, 1);
    map(memory + third, third, MAP_PRIVATE | MAP_FIXED);
    CHECK(is_zero(memory + third, third));
    unsigned char *expected = malloc(len);
    fill(expected, len, TIMES + 100);
    CHECK(memcmp(memory, expected, third) == 0 && memcmp(memory + 2 * third, expected + 2 * third, len - 2 * third) == 0);
    free(expected);
    exchange(memory, len, 2);
    CHECK(madvise(memory + third, third, MADV_DONTNEED) == 0);
    CHECK(is_zero(memory + third, third));
    exchange(memory, len, 3);
    munmap(memory, len);
    CHECK(map(memory, len, MAP_PRIVATE | MAP_FIXED_NOREPLACE) == memory);
    CHECK(is_zero(memory, len));
    exchange(memory, len, 4);
    unsigned char *place = map(NULL, 2 * len, MAP_PRIVATE);
    CHECK(mremap(memory, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, place + len) == place + len);
    CHECK(is_exchanged(place + len, len, 4));
    CHECK(map(memory, len, MAP_PRIVATE | MAP_FIXED_NOREPLACE) == memory);
    exchange(memory, len, 5);
    CHECK(is_exchanged(place + len, len, 4));
    exchange(place, 2 * len, 6);
    CHECK(is_exchanged(memory, len, 5));
    munmap(memory, len);
    munmap(place, 2 * len);
}

static void huge_pages(void) {
    const size_t huge = 2 * MIB;
    unsigned char *memory = map(NULL, 5 * huge, MAP_PRIVATE), *at = memory + (huge - (size_t)memory % huge);
    madvise(at, 4 * huge, MADV_HUGEPAGE);
    exchange(at, 4 * huge, 1);
    madvise(at, huge, MADV_DONTNEED);
    CHECK(is_zero(at, huge));
    exchange(at + 100, 3 * huge, 2);
    munmap(memory, 5 * huge);
}

/* Memory that is no block of the allocator. */
static void other_memory(void) {
    static unsigned char fixed[300 * KIB];
    unsigned char of_stack[200 * KIB], *of_mpi, *shared = map(NULL, MIB, MAP_SHARED);
    FILE *file = tmpfile();
    for (int i = 0; i < 300 * KIB; i++) putc('x', file);
    fflush(file);
    unsigned char *of_file = mmap(NULL, 300 * KIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
    OK(MPI_Alloc_mem(MIB, MPI_INFO_NULL, &of_mpi));
    exchange(fixed, sizeof fixed, 1);
    exchange(of_stack, sizeof of_stack, 2);
    exchange(of_mpi, MIB, 3);
    exchange(shared, MIB, 4);
    exchange(of_file, 300 * KIB, 5);
    CHECK(is_exchanged(fixed, sizeof fixed, 1) && is_exchanged(of_stack, sizeof of_stack, 2));
    CHECK(is_exchanged(of_mpi, MIB, 3) && is_exchanged(shared, MIB, 4) && is_exchanged(of_file, 300 * KIB, 5));
    OK(MPI_Free_mem(of_mpi));
    munmap(shared, MIB);
    munmap(of_file, 300 * KIB);
    CHECK(fseek(file, 0, SEEK_SET) == 0 && getc(file) == 'x');
    fclose(file);
}

/* A send from memory that cannot be written. */
static void read_only(size_t len) {
    unsigned char *memory = map(NULL, len, MAP_PRIVATE), *into = malloc(len);
    fill(memory, len, 9);
    for (int i = 0; i < 2 * TIMES; i++) {
        if (i == TIMES) CHECK(mprotect(memory, len, PROT_READ) == 0);
        MPI_Sendrecv(memory, (int)len, MPI_BYTE, 1 - me, 1, into, (int)len, MPI_BYTE, 1 - me, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        CHECK(is_filled(into, len, 9));
    }
    munmap(memory, len);
    free(into);
}

/* Whether the page of an address is moved. */
static int is_moved(const unsigned char *at) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    int found = 0;
    while (fgets(line, sizeof line, maps)) {
        size_t from, to;
        if (!strstr(line, "farside-moved") || sscanf(line, "%zx-%zx", &from, &to) != 2) continue;
        if (from <= (size_t)at && (size_t)at < to) found = 1;
    }
    fclose(maps);
    return found;
}

/* Blocks side by side, which share the pages at their ends, and are all in use at the same time. Where one is moved, so
   are the others, with their ends. */
static void side_by_side(size_t len) {
    enum { BLOCKS = 4, ROUNDS = 30 };
    unsigned char *from = malloc(BLOCKS * len), *into = malloc(BLOCKS * len);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[2 * BLOCKS];
        fill(from, BLOCKS * len, round);
        for (int i = 0; i < BLOCKS; i++) {
            OK(MPI_Irecv(into + i * len, (int)len, MPI_BYTE, 1 - me, i, MPI_COMM_WORLD, &requests[i]));
            OK(MPI_Isend(from + i * len, (int)len, MPI_BYTE, 1 - me, i, MPI_COMM_WORLD, &requests[BLOCKS + i]));
        }
        OK(MPI_Waitall(2 * BLOCKS, requests, MPI_STATUSES_IGNORE));
        CHECK(is_filled(into, BLOCKS * len, round));
    }
    if (is_moved(from + len / 2))
        for (int i = 0; i < BLOCKS; i++) CHECK(is_moved(from + i * len) && is_moved(from + (i + 1) * len - 1));
    free(from);
    free(into);
}

int main(void) {
    begin_exchanges();
    const int n = COUNT(lengths) - is_emulated();
    for (int i = 0; i < n; i++) {
        freed_and_allocated(lengths[i]);
        reallocated(lengths[i]);
        mapped_over(lengths[i]);
        read_only(lengths[i]);
        side_by_side(lengths[i]);
    }
    huge_pages();
    other_memory();
    for (int i = 0; i < n; i++) trimmed(lengths[i]);
    return finish();
}
