/* Messages from memory that is used again, under limits of the system that are reached: of the length of files, of the
   address space, of descriptors.
   ranks 2 */
#include <sys/resource.h>

#include "buffers.h"

enum { LEN = 300 * 1000 };

static void set_limit(int limit, rlim_t most) {
    struct rlimit limits;
    CHECK(getrlimit(limit, &limits) == 0);
    limits.rlim_cur = most;
    CHECK(setrlimit(limit, &limits) == 0);
}

/* The address space in use, in bytes. */
static rlim_t in_use(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return (rlim_t)pages * 4096;
}

static void exchanged_under(int limit, rlim_t most, int seed) {
    struct rlimit before;
    const size_t long_len = (is_emulated() ? 2 : 10) * LEN;
    unsigned char *memory = malloc(LEN), *more = malloc(long_len);
    CHECK(getrlimit(limit, &before) == 0);
    exchange_once(memory, LEN, seed);
    set_limit(limit, most);
    exchange(memory, LEN, seed);
    exchange(more, long_len, seed + 1);
    set_limit(limit, before.rlim_cur);
    exchange(memory, LEN, seed + 2);
    exchange(more, long_len, seed + 3);
    free(memory);
    free(more);
}

int main(void) {
    begin_exchanges();
    exchanged_under(RLIMIT_FSIZE, 1000, 1);
    exchanged_under(RLIMIT_AS, in_use() + (is_emulated() ? 4 : 12) * LEN, 20);
    exchanged_under(RLIMIT_NOFILE, 3, 40);
    exchanged_under(RLIMIT_MEMLOCK, 0, 60);
    return finish();
}
