/* Operations of several threads of each of two ranks at the same time, as in OSU's osu_latency_mt and osu_mbw_mr: puts with
 * a flush each, atomics with a flush each, and bursts of messages, of 8 bytes. Each thread has a place of its own, and for
 * messages a communicator and a peer thread of its own. Times are of one operation, over all threads of a rank: the inverse of
 * the rate. "Bytes" of a record are the threads. */
#include "peers.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { THREADS_MAX = 64, LINE = 64 };

struct threads {
    int rank, count;
    MPI_Win win;
    unsigned char *memory;
    MPI_Comm comms[THREADS_MAX];
    void (*run)(struct threads *all, int thread, long iterations);
    long iterations;
};

struct thread {
    struct threads *all;
    int number;
};

static void put_flush(struct threads *all, int thread, long iterations) {
    const int peer = 1 - all->rank;
    uint64_t word = 1;
    for (long i = 0; i < iterations; i++) {
        MPI_Put(&word, 8, MPI_BYTE, peer, thread * LINE, 8, MPI_BYTE, all->win);
        MPI_Win_flush(peer, all->win);
    }
}

static void fetch_op(struct threads *all, int thread, long iterations) {
    const int peer = 1 - all->rank;
    uint64_t one = 1, old;
    for (long i = 0; i < iterations; i++) {
        MPI_Fetch_and_op(&one, &old, MPI_UINT64_T, peer, thread * LINE, MPI_SUM, all->win);
        MPI_Win_flush(peer, all->win);
    }
}

static void messages(struct threads *all, int thread, long iterations) {
    MPI_Comm comm = all->comms[thread];
    MPI_Request requests[OPERATIONS];
    uint64_t word = 1, into[OPERATIONS];
    for (long left = iterations; left > 0; left -= OPERATIONS) {
        const int n = left < OPERATIONS ? (int)left : OPERATIONS;
        for (int i = 0; i < n; i++)
            if (all->rank == 0)
                MPI_Isend(&word, 8, MPI_BYTE, 1, 0, comm, &requests[i]);
            else
                MPI_Irecv(&into[i], 8, MPI_BYTE, 0, 0, comm, &requests[i]);
        MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
        if (all->rank == 0)
            MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, comm, MPI_STATUS_IGNORE);
        else
            MPI_Send(NULL, 0, MPI_BYTE, 0, 1, comm);
    }
}

static void *start(void *argument) {
    struct thread *thread = argument;
    thread->all->run(thread->all, thread->number, thread->all->iterations);
    return NULL;
}

/* The iterations of every thread. */
static void run_all(void *argument, long iterations) {
    struct threads *all = argument;
    struct thread each[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    if (all->rank > 1)
        return;
    all->iterations = iterations;
    for (int i = 0; i < all->count; i++) {
        each[i] = (struct thread){all, i};
        if (i > 0)
            pthread_create(&ids[i], NULL, start, &each[i]);
    }
    start(&each[0]);
    for (int i = 1; i < all->count; i++)
        pthread_join(ids[i], NULL);
}

/* Threads of one rank run on all cores of the machine. */
static void use_all_cores(void) {
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int core = 0; core < CPU_SETSIZE; core++)
        CPU_SET(core, &all);
    sched_setaffinity(0, sizeof all, &all);
}

/* Checks that every addition of the threads has reached the peer. */
static void check_sums(struct threads *all, long iterations) {
    const int peer = 1 - all->rank;
    int good = 1;
    if (all->rank < 2)
        for (int i = 0; i < all->count; i++)
            *(volatile uint64_t *)(all->memory + i * LINE) = 0;
    MPI_Win_sync(all->win);
    MPI_Barrier(MPI_COMM_WORLD);
    all->run = fetch_op;
    run_all(all, iterations);
    for (int i = 0; all->rank < 2 && i < all->count; i++) {
        uint64_t sum = 0;
        MPI_Get(&sum, 8, MPI_BYTE, peer, i * LINE, 8, MPI_BYTE, all->win);
        MPI_Win_flush(peer, all->win);
        good &= sum == (uint64_t)iterations;
    }
    check(good, "threads", "flush", "fetch_op", "additions of threads are lost");
}

void run_threads(const struct options *options) {
    struct threads all = {.rank = options->rank};
    int level;
    MPI_Query_thread(&level);
    check(level == MPI_THREAD_MULTIPLE, "threads", "none", "none", "threads cannot call at the same time");
    use_all_cores();
    for (int i = 0; i < THREADS_MAX; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &all.comms[i]);
    MPI_Win_allocate(THREADS_MAX * LINE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &all.memory, &all.win);
    MPI_Win_lock_all(0, all.win);
    for (int i = 0; i < options->bytes.length && options->bytes.value[i] <= THREADS_MAX; i++) {
        all.count = (int)options->bytes.value[i];
        check_sums(&all, 100);
        static const struct {
            const char *window, *sync, *op;
            void (*run)(struct threads *all, int thread, long iterations);
        } kinds[] = {{"allocated", "flush", "put", put_flush},
                     {"allocated", "flush", "fetch_op", fetch_op},
                     {"none", "none", "bandwidth", messages}};
        for (int kind = 0; kind < 3; kind++) {
            const struct what what = {"threads", kinds[kind].window, kinds[kind].sync, kinds[kind].op, all.count, all.count, 0, NULL};
            all.run = kinds[kind].run;
            measure(options, &what, run_all, &all, all.rank < 2);
        }
    }
    MPI_Win_unlock_all(all.win);
    MPI_Win_free(&all.win);
    for (int i = 0; i < THREADS_MAX; i++)
        MPI_Comm_free(&all.comms[i]);
}
