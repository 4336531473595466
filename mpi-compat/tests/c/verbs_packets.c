/* Packets of operations and epochs between two ranks over RDMA devices, in both directions, including
   acknowledgements, from the counters of software devices; without these, nothing is counted.
   ranks 2
   env FARSIDE_VERBS_TIMEOUT=23
   not on peers: they have other counts */
#include "rma.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 1024 };

/* Between fences, and from start to complete, the target's processor carries out accumulates: packets of 494 elements, the last of
   which is the notification, and the acknowledgement of each. Under locks, where the target takes no part, two fetch-and-adds of a
   lock word, and a read and a write of up to 256 elements, with their answers. */
#define LONG_SUM(elements) (2 * (((elements) + 493) / 494) - 2)
#define LONG_SUM_LOCKED(elements) (4 + 4 * (((elements) + 255) / 256))

/* Packets that all devices of the machine have sent; -1 without any that counts. */
static long sent(void) {
    long sum = -1;
    DIR *devices = opendir("/sys/class/infiniband");
    for (struct dirent *entry; devices && (entry = readdir(devices));) {
        char path[600];
        long count;
        snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/sent_pkts", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%ld", &count) == 1) sum = (sum < 0 ? 0 : sum) + count;
        if (file) fclose(file);
    }
    if (devices) closedir(devices);
    return sum;
}

/* The two ranks meet without a packet: words in memory that they share. */
static int *meeting;
static int met;

static void meet(void) {
    met += 2;
    __atomic_add_fetch(meeting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(meeting, __ATOMIC_SEQ_CST) < met) sched_yield();
}

static void open_meeting(void) {
    char name[100];
    snprintf(name, sizeof name, "/farside-packets-%ld", (long)getppid());
    int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    CHECK(file >= 0 && ftruncate(file, sizeof *meeting) == 0);
    meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(meeting != MAP_FAILED);
    close(file);
    MPI_Barrier(MPI_COMM_WORLD);
    shm_unlink(name);
}

static void rest(void) { nanosleep(&(struct timespec){0, 30000000}, NULL); }

static long packets_of(void (*iteration)(void), int times) {
    /* Each message advertises credits to its receiver, so no rank reads them while packets are counted. */
    OK(MPI_Sendrecv(NULL, 0, MPI_BYTE, 1 - me, 0, NULL, 0, MPI_BYTE, 1 - me, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    rest();
    meet();
    long before = sent();
    meet();
    for (int i = 0; i < times; i++) iteration();
    MPI_Barrier(MPI_COMM_WORLD);
    /* Acknowledgements for which no call waits. */
    rest();
    meet();
    long after = sent();
    meet();
    return after - before;
}

/* Packets of one iteration, from runs of two lengths: what surrounds them cancels out. A remainder is of questions whether the
   other rank is there, after seconds of waiting as on a loaded machine. */
static void row(const char *name, int wanted, void (*iteration)(void)) {
    enum { SHORT = 20, LONG = 60 };
    packets_of(iteration, SHORT);
    long packets = 0;
    for (int i = 0; i < 5; i++) {
        long some = packets_of(iteration, SHORT);
        packets = packets_of(iteration, LONG) - some;
        int odd = packets % (LONG - SHORT) != 0, any;
        OK(MPI_Allreduce(&odd, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
        if (!any) break;
    }
    double one = (double)packets / (LONG - SHORT);
    if (me == 0) printf("%-46s %8.2f, %d expected\n", name, one, wanted);
    /* In waits of seconds, as on a loaded machine, a rank asks whether the other one is alive: a few packets in all. */
    CHECK(labs(packets - (long)wanted * (LONG - SHORT)) <= 8);
}

static MPI_Group other;
static int64_t value = 7, old;
static int32_t half = 3, old_half;
static double doubles[LONGEST];
static int64_t integers[LONGEST];
static int count;

static void put_to(int target) { OK(MPI_Put(&value, 1, MPI_INT64_T, target, 0, 1, MPI_INT64_T, win)); }

static void accumulate(void) {
    OK(MPI_Accumulate(doubles, count, MPI_DOUBLE, 1, 8, count, MPI_DOUBLE, MPI_SUM, win));
}

static void accumulate_integers(void) {
    OK(MPI_Accumulate(integers, count, MPI_INT64_T, 1, 8, count, MPI_INT64_T, MPI_SUM, win));
}

static void get_accumulate(void) {
    static double former[LONGEST];
    OK(MPI_Get_accumulate(doubles, count, MPI_DOUBLE, former, count, MPI_DOUBLE, 1, 8, count, MPI_DOUBLE, MPI_SUM, win));
}

static void fetch_and_op(void) { OK(MPI_Fetch_and_op(&value, &old, MPI_INT64_T, 1, 1, MPI_SUM, win)); }

static void barrier(void) { OK(MPI_Barrier(MPI_COMM_WORLD)); }

static void put_fence(void) {
    if (me == 0) put_to(1);
    FENCE();
}

static void both_put_fence(void) {
    put_to(1 - me);
    FENCE();
}

static void own_put_fence(void) {
    put_to(me);
    FENCE();
}

#define FENCED(name, operation) \
    static void name(void) { \
        if (me == 0) operation; \
        FENCE(); \
    }
FENCED(accumulate_fence, accumulate())
FENCED(integers_fence, accumulate_integers())
FENCED(get_accumulate_fence, get_accumulate())
FENCED(fetch_and_op_fence, fetch_and_op())
FENCED(fetch_and_ops_fence, for (int i = 0; i < 10; i++) fetch_and_op())

static void in_pscw(void (*operation)(void)) {
    if (me == 1) {
        OK(MPI_Win_post(other, 0, win));
        OK(MPI_Win_wait(win));
        return;
    }
    OK(MPI_Win_start(other, 0, win));
    if (operation) operation();
    OK(MPI_Win_complete(win));
}

static void put(void) { put_to(1); }
static void pscw_put(void) { in_pscw(put); }
static void pscw_empty(void) { in_pscw(NULL); }
static void pscw_accumulate(void) { in_pscw(accumulate); }

static void lock_put(void) {
    if (me == 1) return;
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win));
    put_to(1);
    OK(MPI_Win_unlock(1, win));
}

#define FLUSHED(name, call) \
    static void name(void) { \
        if (me == 1) return; \
        OK(call); \
        OK(MPI_Win_flush(1, win)); \
    }
FLUSHED(flushed_put, MPI_Put(&value, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win))
FLUSHED(flushed_get, MPI_Get(&old, 1, MPI_INT64_T, 1, 0, 1, MPI_INT64_T, win))
FLUSHED(flushed_fetch_and_op, MPI_Fetch_and_op(&value, &old, MPI_INT64_T, 1, 1, MPI_SUM, win))
FLUSHED(flushed_compare_and_swap, MPI_Compare_and_swap(&value, &value, &old, MPI_INT64_T, 1, 2, win))
FLUSHED(flushed_sum, MPI_Accumulate(&value, 1, MPI_INT64_T, 1, 1, 1, MPI_INT64_T, MPI_SUM, win))
FLUSHED(flushed_no_op, MPI_Get_accumulate(&value, 1, MPI_INT64_T, &old, 1, MPI_INT64_T, 1, 1, 1, MPI_INT64_T, MPI_NO_OP, win))
FLUSHED(flushed_long, MPI_Accumulate(doubles, count, MPI_DOUBLE, 1, 8, count, MPI_DOUBLE, MPI_SUM, win))
FLUSHED(flushed_max, MPI_Accumulate(&value, 1, MPI_INT64_T, 1, 3, 1, MPI_INT64_T, MPI_MAX, win))
FLUSHED(flushed_half, MPI_Accumulate(&half, 1, MPI_INT32_T, 1, 4, 1, MPI_INT32_T, MPI_SUM, win))
FLUSHED(flushed_half_swap, MPI_Compare_and_swap(&half, &half, &old_half, MPI_INT32_T, 1, 5, win))

int main(void) {
    void *memory;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (sent() < 0) return finish();
    int peer = 1 - me;
    other = group_of(1, &peer);
    open_meeting();
    OK(MPI_Win_allocate(8 * (8 + LONGEST), 8, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    memset(memory, 0, 8 * (8 + LONGEST));
    row("barrier", 4, barrier);
    FENCE();
    row("put + fence", 4, put_fence);
    row("both put + fence", 4, both_put_fence);
    row("both put to themselves + fence", 4, own_put_fence);
    for (int i = 0; i < LONGEST; i++) doubles[i] = i;
    count = 128;
    row("accumulate of 128 doubles + fence", 4 + LONG_SUM(128), accumulate_fence);
    count = 1024;
    row("accumulate of 1024 doubles + fence", 4 + LONG_SUM(1024), accumulate_fence);
    row("accumulate of 1024 64-bit integers + fence", 4 + LONG_SUM(1024), integers_fence);
    row("get_accumulate of 1024 doubles + fence", 4 + LONG_SUM(1024) + 6, get_accumulate_fence);
    row("fetch_and_op (64-bit sum) + fence", 6, fetch_and_op_fence);
    row("ten times fetch_and_op (64-bit sum) + fence", 6, fetch_and_ops_fence);
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    row("post, start, put, complete, wait", 4, pscw_put);
    row("empty post, start, complete, wait", 4, pscw_empty);
    count = 128;
    row("accumulate of 128 doubles in an access epoch", 4 + LONG_SUM(128), pscw_accumulate);
    count = 1024;
    row("accumulate of 1024 doubles in an access epoch", 4 + LONG_SUM(1024), pscw_accumulate);
    row("lock exclusive, put, unlock", 6, lock_put);
    OK(MPI_Win_lock_all(0, win));
    row("put + flush", 2, flushed_put);
    row("get + flush", 2, flushed_get);
    count = 128;
    row("accumulate of 128 doubles + flush", LONG_SUM_LOCKED(128), flushed_long);
    row("fetch_and_op (64-bit sum) + flush", 2, flushed_fetch_and_op);
    row("compare_and_swap (64-bit) + flush", 2, flushed_compare_and_swap);
    row("accumulate (one 64-bit sum) + flush", 2, flushed_sum);
    row("get_accumulate (64-bit no-op) + flush", 2, flushed_no_op);
    row("accumulate (one 64-bit max) + flush", 4, flushed_max);
    row("accumulate (one 32-bit sum) + flush", 8, flushed_half);
    row("compare_and_swap (32-bit) + flush", 8, flushed_half_swap);
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Group_free(&other));
    OK(MPI_Win_free(&win));
    return finish();
}
