/* Two-sided messages between ranks 0 and 1: latency, bandwidth, message rate, and the time to match while others are
 * outstanding. Times are of one message, one way. */
#include "peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 1, OTHER_TAG = 1000, OUTSTANDING_MAX = 10000 };

struct messages {
    int rank, partner;
    int bytes;
    int source; /* the source of receives */
    unsigned char *from, *into;
};

static void ping_pong(void *argument, long iterations) {
    const struct messages *m = argument;
    if (m->rank > 1)
        return;
    for (long i = 0; i < iterations; i++) {
        if (m->rank == 0)
            MPI_Send(m->from, m->bytes, MPI_BYTE, m->partner, TAG, MPI_COMM_WORLD);
        MPI_Recv(m->into, m->bytes, MPI_BYTE, m->source, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (m->rank == 1)
            MPI_Send(m->from, m->bytes, MPI_BYTE, m->partner, TAG, MPI_COMM_WORLD);
    }
}

/* OPERATIONS messages from rank 0 to rank 1, which answers when all have arrived. */
static void burst(void *argument, long iterations) {
    const struct messages *m = argument;
    MPI_Request requests[OPERATIONS];
    if (m->rank > 1)
        return;
    for (long i = 0; i < iterations; i++) {
        for (int j = 0; j < OPERATIONS; j++)
            if (m->rank == 0)
                MPI_Isend(m->from, m->bytes, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[j]);
            else
                MPI_Irecv(m->into, m->bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[j]);
        MPI_Waitall(OPERATIONS, requests, MPI_STATUSES_IGNORE);
        if (m->rank == 1)
            MPI_Send(NULL, 0, MPI_BYTE, 0, TAG, MPI_COMM_WORLD);
        else
            MPI_Recv(NULL, 0, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* Checks that messages of every length arrive unchanged. */
static void check_data(struct messages *m) {
    for (int i = 0; i < m->bytes; i++)
        m->from[i] = (unsigned char)(i * 7 + m->rank);
    memset(m->into, 0, (size_t)m->bytes);
    ping_pong(m, 1);
    int good = 1;
    for (int i = 0; m->rank < 2 && i < m->bytes; i++)
        good &= m->into[i] == (unsigned char)(i * 7 + m->partner);
    check(good, "two-sided", "none", "latency", "a message came with other bytes");
}

/* A round trip while `count` receives, or unexpected messages, are outstanding at both ranks. Each has another tag,
 * or another source (this rank itself), or the receives are from any source. */
static void matching(const struct options *options, struct messages *m, const char *op, int early, int count) {
    static long words[OUTSTANDING_MAX];
    static MPI_Request requests[OUTSTANDING_MAX];
    const int by_source = strstr(op, "source") != NULL, any = strstr(op, "any") != NULL;
    const int peer = by_source ? m->rank : m->partner;
    const struct what what = {"two-sided", "none", "none", op, count, 2, 0};
    long word = 0;
    m->source = any ? MPI_ANY_SOURCE : m->partner;
    for (int part = early; part < early + 2; part++) {
        /* Either the receives or the messages come first. */
        for (int i = 0; m->rank < 2 && i < count; i++) {
            const int tag = by_source ? TAG : OTHER_TAG + i;
            if (part == 1)
                MPI_Send(&word, 8, MPI_BYTE, peer, tag, MPI_COMM_WORLD);
            else if (early)
                MPI_Recv(&words[i], 8, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else
                MPI_Irecv(&words[i], 8, MPI_BYTE, any && !by_source ? MPI_ANY_SOURCE : peer, tag, MPI_COMM_WORLD, &requests[i]);
        }
        if (part == early)
            measure(options, &what, ping_pong, m, m->rank == 0);
    }
    if (!early && m->rank < 2)
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    m->source = m->partner;
}

void run_two_sided(const struct options *options) {
    static const char *const posted[] = {"posted_tag", "posted_source", "posted_any"};
    static const char *const early[] = {"early_tag", "early_source", "early_any"};
    const long room = options->bytes.value[options->bytes.length - 1];
    struct messages m = {options->rank, options->rank ^ 1, 8, options->rank ^ 1, pages(room), pages(room)};
    for (int i = 0; i < options->bytes.length; i++) {
        m.bytes = (int)options->bytes.value[i];
        const struct what latency = {"two-sided", "none", "none", "latency", m.bytes, 2, 0};
        const struct what bandwidth = {"two-sided", "none", "none", "bandwidth", m.bytes, OPERATIONS, 1};
        check_data(&m);
        measure(options, &latency, ping_pong, &m, m.rank == 0);
        if (!options->packets)
            measure(options, &bandwidth, burst, &m, m.rank == 0);
    }
    m.bytes = 8;
    for (int count = 1; !options->packets && count <= OUTSTANDING_MAX; count *= 10)
        for (int i = 0; i < 3; i++) {
            matching(options, &m, posted[i], 0, count);
            matching(options, &m, early[i], 1, count);
        }
    free(m.from);
    free(m.into);
}
