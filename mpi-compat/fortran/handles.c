/* Handles as integers. */
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* The handles of one kind, for a library that does not find them by its own integers. An integer that is used again refers to
 * the later handle. */
struct entry {
    int number;
    void *handle;
};
struct kept {
    /* 0 as long as it is not known, 1 if the library finds its handles, 2 if they are kept here. */
    int state;
    size_t used, size;
    struct entry *entries;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct entry *place(const struct kept *kept, int number)
{
    size_t at = (unsigned)number * 2654435761u & (kept->size - 1);
    while (kept->entries[at].handle && kept->entries[at].number != number) at = (at + 1) & (kept->size - 1);
    return &kept->entries[at];
}

static void add(struct kept *kept, int number, void *handle)
{
    pthread_mutex_lock(&lock);
    if (2 * kept->used >= kept->size) {
        struct kept larger = {.size = kept->size ? 2 * kept->size : 64, .used = kept->used};
        larger.entries = calloc(larger.size, sizeof *larger.entries);
        if (!larger.entries) {
            fputs("libmpifort_abi: out of memory for handles\n", stderr);
            abort();
        }
        for (size_t i = 0; i < kept->size; ++i)
            if (kept->entries[i].handle) *place(&larger, kept->entries[i].number) = kept->entries[i];
        free(kept->entries);
        kept->entries = larger.entries;
        kept->size = larger.size;
    }
    struct entry *entry = place(kept, number);
    kept->used += !entry->handle;
    *entry = (struct entry){number, handle};
    pthread_mutex_unlock(&lock);
}

static void *find(struct kept *kept, int number)
{
    pthread_mutex_lock(&lock);
    void *found = kept->size ? place(kept, number)->handle : NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

#define CONVERT(name, type, first, end) \
    static struct kept name; \
    type farside_##name##_from(int number) \
    { \
        void *kept = __atomic_load_n(&name.state, __ATOMIC_RELAXED) == 2 ? find(&name, number) : NULL; \
        return kept ? kept : MPI_##name##_fromint(number); \
    } \
    int farside_##name##_to(type handle) \
    { \
        int number = MPI_##name##_toint(handle); \
        int state = __atomic_load_n(&name.state, __ATOMIC_RELAXED); \
        if (state == 0) { \
            state = MPI_##name##_fromint(number) == handle ? 1 : 2; \
            __atomic_store_n(&name.state, state, __ATOMIC_RELAXED); \
        } \
        if (state == 2) add(&name, number, handle); \
        return number; \
    }
FARSIDE_HANDLES(CONVERT)
