/* Messages between all ranks, of random lengths, from and to random places of memory of random kind and lifetime, each
   of which is checked, with the bytes beside it. FARSIDE_TEST_MESSAGES sets the number of messages of a rank.
   ranks 2 3 */
#define _GNU_SOURCE
#include "buffers.h"

enum { AREAS = 12, LONGEST = 3 << 20, BESIDE = 64, MOST_RANKS = 8 };

/* Memory, all of whose bytes are `mark` but those that a message has. */
typedef struct {
    unsigned char *base;
    size_t len;
    int mapped, mark;
} Area;

static Area areas[AREAS];
static uint64_t own_state;

static uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static size_t any(size_t n) { return (own_state = mixed(own_state)) % n; }

/* As many short lengths as long ones. */
static size_t length_of(uint64_t message) {
    uint64_t x = mixed(message);
    return mixed(x) % (((size_t)LONGEST >> x % 20) + 1);
}

static void end_area(Area *area) {
    if (area->mapped) munmap(area->base, area->len);
    else free(area->base);
    area->base = NULL;
}

static void begin_area(Area *area, size_t len) {
    area->len = len;
    area->mapped = any(4) == 0;
    if (area->mapped) area->base = map(NULL, len, MAP_PRIVATE);
    else area->base = any(3) == 0 ? calloc(len, 1) : malloc(len);
    area->mark = (int)any(255);
    memset(area->base, area->mark, len);
}

/* A place for a message in an area that no message of this round has yet. Areas are freed, made longer, and kept. */
static unsigned char *place_for(Area *area, size_t len) {
    size_t least = len + 2 * BESIDE;
    size_t kind = any(8);
    if (area->base && (area->len < least || kind == 0)) {
        if (area->mapped || kind < 4) end_area(area);
        else {
            area->base = realloc(area->base, least);
            if (area->len < least) memset(area->base + area->len, area->mark, least - area->len);
            area->len = least;
        }
    }
    if (!area->base) begin_area(area, least + any(3) * any(LONGEST));
    size_t shift = any(area->len - least + 1);
    return area->base + BESIDE + (any(2) ? shift : shift / 4096 * 4096);
}

static int beside_is_marked(const Area *area, const unsigned char *at, size_t len) {
    for (int i = 1; i <= BESIDE; i++)
        if (at[-i] != area->mark || at[len + i - 1] != area->mark) return 0;
    return 1;
}

/* One message from and to each other rank. */
static void one_round(uint64_t round, int size) {
    MPI_Request requests[2 * MOST_RANKS];
    unsigned char *into[MOST_RANKS], *from[MOST_RANKS];
    size_t received[MOST_RANKS], sent[MOST_RANKS];
    Area *of_into[MOST_RANKS], *of_from[MOST_RANKS];
    int order[AREAS], n = 0, next = 0;
    for (int i = 0; i < AREAS; i++) order[i] = i;
    for (int i = AREAS - 1; i > 0; i--) {
        int j = (int)any(i + 1), one = order[i];
        order[i] = order[j];
        order[j] = one;
    }
    for (int r = 0; r < size; r++) {
        if (r == me) continue;
        received[r] = length_of((round * MOST_RANKS + r) * MOST_RANKS + me);
        sent[r] = length_of((round * MOST_RANKS + me) * MOST_RANKS + r);
        into[r] = place_for(of_into[r] = &areas[order[next++]], received[r]);
        from[r] = place_for(of_from[r] = &areas[order[next++]], sent[r]);
        fill(from[r], sent[r], (int)round + r);
    }
    for (int k = 1; k < size; k++) {
        int source = (me + k) % size, target = (me + size - k) % size;
        OK(MPI_Irecv(into[source], (int)received[source], MPI_BYTE, source, 0, MPI_COMM_WORLD, &requests[n++]));
        OK(MPI_Isend(from[target], (int)sent[target], MPI_BYTE, target, 0, MPI_COMM_WORLD, &requests[n++]));
    }
    OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
    for (int r = 0; r < size; r++) {
        if (r == me) continue;
        CHECK(is_filled(into[r], received[r], (int)round + me) && beside_is_marked(of_into[r], into[r], received[r]));
        CHECK(is_filled(from[r], sent[r], (int)round + r) && beside_is_marked(of_from[r], from[r], sent[r]));
        memset(into[r], of_into[r]->mark, received[r]);
        memset(from[r], of_from[r]->mark, sent[r]);
    }
}

int main(void) {
    int size;
    begin_exchanges();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *wanted = getenv("FARSIDE_TEST_MESSAGES");
    long messages = wanted ? atol(wanted) : rounds(1000);
    own_state = 1000 + me;
    for (long done = 0; done < messages && failures == 0; done += size - 1) one_round(done, size);
    for (int i = 0; i < AREAS; i++)
        if (areas[i].base) end_area(&areas[i]);
    return finish();
}
