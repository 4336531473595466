/* Suite "irregular": accesses to random words of all ranks. Times are of one update, insertion or look-up.
 * random_access: exclusive-or of words of a table, as in RandomAccess of HPC Challenge, with the most outstanding
 * updates that its rules permit; by accumulates, and by messages to the owners. The check is that the two undo each
 * other. table: a hash table with linear probing in several regions that each rank attaches, by compare-and-swap and
 * fetch-and-op only; half of the keys come from two ranks. All keys must be found with the sum of their values, and
 * no other keys. */
#include "peers.h"

#include <stdlib.h>
#include <string.h>

enum { WORDS = 1 << 16, UPDATES = 1024, KEYS = 256, PIECES = 4, SLOTS = KEYS };
/* WORDS of each rank; UPDATES of a rank in an iteration; KEYS of a rank; SLOTS in each of the PIECES of a rank. */

struct access {
    int rank, ranks;
    uint64_t *table, random;
    MPI_Win win;
    uint64_t *from, *into; /* UPDATES for each rank */
    long batches;
};

static uint64_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state ^ *state >> 29;
}

static void by_accumulates(void *argument, long iterations) {
    struct access *a = argument;
    for (; iterations > 0; iterations--, a->batches++) {
        for (int i = 0; i < UPDATES; i++) {
            const uint64_t word = a->from[i] = next_random(&a->random), place = word % ((uint64_t)WORDS * (uint64_t)a->ranks);
            MPI_Accumulate(&a->from[i], 1, MPI_UINT64_T, (int)(place / WORDS), (MPI_Aint)(place % WORDS), 1, MPI_UINT64_T, MPI_BXOR, a->win);
        }
        MPI_Win_flush_all(a->win);
    }
}

static void by_messages(void *argument, long iterations) {
    struct access *a = argument;
    int *const counts = malloc(sizeof(int) * (size_t)a->ranks);
    MPI_Request *const requests = malloc(sizeof(MPI_Request) * 2 * (size_t)a->ranks);
    MPI_Status *const statuses = malloc(sizeof(MPI_Status) * 2 * (size_t)a->ranks);
    for (; iterations > 0; iterations--, a->batches++) {
        memset(counts, 0, sizeof(int) * (size_t)a->ranks);
        for (int i = 0; i < UPDATES; i++) {
            const uint64_t word = next_random(&a->random);
            const int owner = (int)(word % ((uint64_t)WORDS * (uint64_t)a->ranks) / WORDS);
            a->from[owner * UPDATES + counts[owner]++] = word;
        }
        for (int r = 0; r < a->ranks; r++)
            MPI_Irecv(&a->into[r * UPDATES], UPDATES, MPI_UINT64_T, r, 0, MPI_COMM_WORLD, &requests[r]);
        for (int r = 0; r < a->ranks; r++)
            MPI_Isend(&a->from[r * UPDATES], counts[r], MPI_UINT64_T, r, 0, MPI_COMM_WORLD, &requests[a->ranks + r]);
        MPI_Waitall(2 * a->ranks, requests, statuses);
        for (int r = 0; r < a->ranks; r++) {
            int came;
            MPI_Get_count(&statuses[r], MPI_UINT64_T, &came);
            for (int i = 0; i < came; i++) {
                const uint64_t word = a->into[r * UPDATES + i];
                a->table[word % ((uint64_t)WORDS * (uint64_t)a->ranks) % WORDS] ^= word;
            }
        }
    }
    free(counts);
    free(requests);
    free(statuses);
}

/* Measures one way, and undoes its updates by the other. */
static void random_access(const struct options *options, struct access *a, const char *sync, body way, body back) {
    const struct what what = {"irregular", "allocated", sync, "random_access", 8, UPDATES, 0, NULL};
    for (long i = 0; i < WORDS; i++)
        a->table[i] = (uint64_t)i;
    a->random = (uint64_t)a->rank + 1;
    a->batches = 0;
    /* Words are accessed either by atomics or by their owner, never by both at once. */
    MPI_Win_lock_all(0, a->win);
    MPI_Win_sync(a->win);
    MPI_Barrier(MPI_COMM_WORLD);
    measure(options, &what, way, a, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(a->win);
    long changed = 0;
    for (long i = 0; i < WORDS; i++)
        changed += a->table[i] != (uint64_t)i;
    check(changed > 0, "irregular", sync, "random_access", "nothing was updated");
    MPI_Barrier(MPI_COMM_WORLD);
    a->random = (uint64_t)a->rank + 1;
    back(a, a->batches);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_unlock_all(a->win);
    int good = 1;
    for (long i = 0; i < WORDS; i++)
        good &= a->table[i] == (uint64_t)i;
    check(good, "irregular", sync, "random_access", "an update was lost, or made twice");
    MPI_Barrier(MPI_COMM_WORLD);
}

struct slot {
    int64_t key, sum; /* key 0: empty */
};

struct table {
    int rank, ranks;
    MPI_Win win;
    struct slot *pieces[PIECES];
    MPI_Aint *places; /* of the pieces of all ranks */
    int64_t *keys;    /* followed by those of the next rank */
    int wrong;
};

/* The keys of a rank, which are odd and thus never 0; their second half is the first half of the next rank's. */
static int64_t key_of(int rank, int ranks, int i) {
    uint64_t state = (uint64_t)((rank * (KEYS / 2) + i) % (ranks * (KEYS / 2)));
    return (int64_t)(((state + 1) * 0x9e3779b97f4a7c15u) >> 1 | 1);
}

/* The rank and the address of the slot at a position of the whole table. */
static int locate(const struct table *t, uint64_t position, MPI_Aint *at) {
    const uint64_t slots = (uint64_t)SLOTS, piece = position / slots % ((uint64_t)t->ranks * PIECES);
    *at = MPI_Aint_add(t->places[piece], (MPI_Aint)(position % slots * sizeof(struct slot)));
    return (int)(piece / PIECES);
}

static void insert(struct table *t, int64_t key, int64_t value) {
    const int64_t empty = 0;
    int64_t found;
    MPI_Aint at;
    for (uint64_t position = (uint64_t)key >> 8;; position++) {
        const int owner = locate(t, position, &at);
        MPI_Compare_and_swap(&key, &empty, &found, MPI_INT64_T, owner, at, t->win);
        MPI_Win_flush(owner, t->win);
        if (found != empty && found != key)
            continue;
        MPI_Fetch_and_op(&value, &found, MPI_INT64_T, owner, MPI_Aint_add(at, offsetof(struct slot, sum)), MPI_SUM, t->win);
        MPI_Win_flush(owner, t->win);
        return;
    }
}

/* The sum of the values of a key, 0 if it is not in the table. */
static int64_t find(const struct table *t, int64_t key) {
    struct slot got;
    MPI_Aint at;
    for (uint64_t position = (uint64_t)key >> 8;; position++) {
        const int owner = locate(t, position, &at);
        MPI_Get(&got, 2, MPI_INT64_T, owner, at, 2, MPI_INT64_T, t->win);
        MPI_Win_flush(owner, t->win);
        if (got.key == key || got.key == 0)
            return got.key ? got.sum : 0;
    }
}

static void fill_table(void *argument, long iterations) {
    struct table *t = argument;
    for (; iterations > 0; iterations--) {
        for (int i = 0; i < PIECES; i++)
            memset(t->pieces[i], 0, SLOTS * sizeof(struct slot));
        MPI_Win_sync(t->win);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < KEYS; i++)
            insert(t, t->keys[i], t->rank + 1);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(t->win);
    }
}

static void find_all(void *argument, long iterations) {
    struct table *t = argument;
    for (; iterations > 0; iterations--)
        for (int i = 0; i < KEYS; i++) {
            /* This half is also inserted by the rank before or after this one. */
            const int other = (i < KEYS / 2 ? t->rank + t->ranks - 1 : t->rank + 1) % t->ranks;
            t->wrong += find(t, t->keys[i]) != t->rank + 1 + other + 1;
        }
}

static void table(const struct options *options) {
    const struct what filled = {"irregular", "dynamic", "lock_all", "insert", 16, KEYS, 0, NULL};
    const struct what found = {"irregular", "dynamic", "lock_all", "find", 16, KEYS, 0, NULL};
    struct table t = {options->rank, options->ranks, MPI_WIN_NULL, {NULL}, NULL, NULL, 0};
    MPI_Aint mine[PIECES];
    t.places = malloc(sizeof mine * (size_t)t.ranks);
    t.keys = malloc(sizeof(int64_t) * KEYS);
    for (int i = 0; i < KEYS; i++)
        t.keys[i] = key_of(t.rank, t.ranks, i);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &t.win);
    for (int i = 0; i < PIECES; i++) {
        t.pieces[i] = calloc(SLOTS, sizeof(struct slot));
        MPI_Win_attach(t.win, t.pieces[i], SLOTS * sizeof(struct slot));
        MPI_Get_address(t.pieces[i], &mine[i]);
    }
    MPI_Allgather(mine, PIECES, MPI_AINT, t.places, PIECES, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_lock_all(0, t.win);
    measure(options, &filled, fill_table, &t, 1);
    measure(options, &found, find_all, &t, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t here[2] = {0, 0}, all[2];
    for (int i = 0; i < PIECES * SLOTS; i++) {
        here[0] += t.pieces[i / SLOTS][i % SLOTS].key != 0;
        here[1] += t.pieces[i / SLOTS][i % SLOTS].sum;
    }
    MPI_Allreduce(here, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    check(t.wrong == 0, "irregular", "lock_all", "find", "a key is not there, or with another value");
    check(find(&t, 2) == 0, "irregular", "lock_all", "find", "a key is there that was not inserted");
    check(all[0] == t.ranks * (KEYS / 2), "irregular", "lock_all", "insert", "another number of keys");
    check(all[1] == (int64_t)t.ranks * (t.ranks + 1) / 2 * KEYS, "irregular", "lock_all", "insert", "another sum of values");
    MPI_Win_unlock_all(t.win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < PIECES; i++)
        MPI_Win_detach(t.win, t.pieces[i]);
    MPI_Win_free(&t.win);
    for (int i = 0; i < PIECES; i++)
        free(t.pieces[i]);
    free(t.places);
    free(t.keys);
}

void run_irregular(const struct options *options) {
    struct access a = {options->rank, options->ranks, NULL, 0, MPI_WIN_NULL, NULL, NULL, 0};
    a.from = malloc(sizeof(uint64_t) * UPDATES * (size_t)a.ranks);
    a.into = malloc(sizeof(uint64_t) * UPDATES * (size_t)a.ranks);
    MPI_Win_allocate(WORDS * sizeof(uint64_t), sizeof(uint64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &a.table, &a.win);
    random_access(options, &a, "lock_all", by_accumulates, by_messages);
    random_access(options, &a, "none", by_messages, by_accumulates);
    MPI_Win_free(&a.win);
    free(a.from);
    free(a.into);
    table(options);
}
