/* A port goes down while messages of every protocol, puts between fences, locks, atomics and collectives are in progress, and
   comes up again after a second: nothing is lost, done twice or overtaken, and nobody waits for ever. In the emulated machine,
   whose ports can be taken down; elsewhere nothing is.
   ranks 2 4
   not on peers: they take no port down */
#include "check.h"
#include <unistd.h>

enum { ELEMENTS = 2000, LONGEST = 4 << 20 };

static const int lengths[] = {8, 4096, 65536, 200000, LONGEST};

/* Takes both ports down and up again, from a process of its own that no rank holds up. */
static void blink(const char *device) {
    char command[300];
    snprintf(command, sizeof command,
             "chrt -f 10 sh -c 'sleep 0.3; rxe-link down %s; sleep 1; rxe-link up %s' </dev/null >/dev/null 2>&1 &", device, device);
    CHECK(system(command) == 0);
}

static void messages(int round, int to, int from, char *out, char *in) {
    for (int i = 0; i < COUNT(lengths); i++) {
        if (lengths[i] == LONGEST && round % 8) continue;
        memset(out, round * 7 + i + rank_of(MPI_COMM_WORLD), lengths[i]);
        MPI_Request receive;
        OK(MPI_Irecv(in, lengths[i], MPI_CHAR, from, i, MPI_COMM_WORLD, &receive));
        OK(MPI_Send(out, lengths[i], MPI_CHAR, to, i, MPI_COMM_WORLD));
        OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
        int wrong = 0;
        for (int at = 0; at < lengths[i]; at += 61) wrong += in[at] != (char)(round * 7 + i + from);
        CHECK(wrong == 0 && in[lengths[i] - 1] == (char)(round * 7 + i + from));
    }
}

static void puts_between_fences(int round, int to, int from, MPI_Win win, const long *memory) {
    static long values[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++) values[i] = round * 1000003L + i * 7 + rank_of(MPI_COMM_WORLD);
    OK(MPI_Put(values, ELEMENTS, MPI_LONG, to, 0, ELEMENTS, MPI_LONG, win));
    OK(MPI_Win_fence(0, win));
    int wrong = 0;
    for (int i = 0; i < ELEMENTS; i++) wrong += memory[i] != round * 1000003L + i * 7 + from;
    CHECK(wrong == 0);
    OK(MPI_Win_fence(0, win));
}

/* Every rank adds one to three words of rank 0: under an exclusive lock, by fetch-and-op, by an accumulate. */
static void sums(int round, int size, MPI_Win win) {
    long word, one = 1, old, all[3];
    OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
    OK(MPI_Get(&word, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win));
    OK(MPI_Win_flush(0, win));
    word++;
    OK(MPI_Put(&word, 1, MPI_LONG, 0, 0, 1, MPI_LONG, win));
    OK(MPI_Win_unlock(0, win));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    OK(MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, 1, MPI_SUM, win));
    OK(MPI_Accumulate(&one, 1, MPI_LONG, 0, 2, 1, MPI_LONG, MPI_SUM, win));
    OK(MPI_Win_unlock(0, win));
    CHECK(old >= (long)round * size && old < (round + 1L) * size);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    OK(MPI_Get(all, 3, MPI_LONG, 0, 0, 3, MPI_LONG, win));
    OK(MPI_Win_unlock(0, win));
    for (int i = 0; i < 3; i++) CHECK(all[i] == (round + 1L) * size);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(void) {
    start();
    int rank = rank_of(MPI_COMM_WORLD), size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int to = (rank + 1) % size, from = (rank + size - 1) % size, has_ports = getenv("RXE") != NULL;
    char *out = malloc(LONGEST), *in = malloc(LONGEST);
    long *memory, *words;
    MPI_Win win, sum;
    OK(MPI_Win_allocate(ELEMENTS * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Win_allocate(3 * sizeof *words, sizeof *words, MPI_INFO_NULL, MPI_COMM_WORLD, &words, &sum));
    memset(words, 0, 3 * sizeof *words);
    OK(MPI_Win_fence(0, win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0 && has_ports) blink("rxe0");
    double begun = MPI_Wtime();
    for (int round = 0, stop = 0;; round++) {
        stop = MPI_Wtime() - begun > (has_ports ? 4 : 0) && round > 3;
        OK(MPI_Bcast(&stop, 1, MPI_INT, 0, MPI_COMM_WORLD));
        if (stop) break;
        messages(round, to, from, out, in);
        puts_between_fences(round, to, from, win, memory);
        sums(round, size, sum);
        long mine = round * 3 + rank, all;
        OK(MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
        CHECK(all == round * 3L * size + size * (size - 1) / 2);
        if (failures) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    OK(MPI_Win_free(&win));
    OK(MPI_Win_free(&sum));
    free(out);
    free(in);
    return finish();
}
