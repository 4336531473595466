/* Threads send from one buffer at the same time, while others read it; messages go through a ring of ranks, each of
   which receives into the memory from which it has just sent.
   ranks 2 3
   link -pthread */
#include <stdatomic.h>

#include "threads.h"

enum { LEN = 400 * 1000, SENDERS = 3, READERS = 1, ROUNDS = 30 };

static int me, size, rounds_done;
static unsigned char *buffer;
static atomic_int stop;

static void *sender(void *number) {
    int tag = *(int *)number, peer = (me + 1) % size;
    if (tag >= SENDERS) {
        while (!stop) CHECK(is_filled(buffer, LEN, me));
        return NULL;
    }
    for (int i = 0; i < rounds_done; i++) OK(MPI_Send(buffer, LEN, MPI_BYTE, peer, tag, MPI_COMM_WORLD));
    return NULL;
}

static void received(void) {
    unsigned char *into = malloc(LEN);
    int peer = (me + size - 1) % size;
    for (int i = 0; i < rounds_done * SENDERS; i++) {
        memset(into, 0, LEN);
        OK(MPI_Recv(into, LEN, MPI_BYTE, peer, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(is_filled(into, LEN, peer));
    }
    free(into);
}

static void around(void) {
    unsigned char *memory = malloc(LEN);
    int right = (me + 1) % size, left = (me + size - 1) % size;
    fill(memory, LEN, me);
    for (int i = 0; i < rounds_done * size; i++) {
        if (me == 0) OK(MPI_Send(memory, LEN, MPI_BYTE, right, 9, MPI_COMM_WORLD));
        OK(MPI_Recv(memory, LEN, MPI_BYTE, left, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (me != 0) OK(MPI_Send(memory, LEN, MPI_BYTE, right, 9, MPI_COMM_WORLD));
        CHECK(is_filled(memory, LEN, i));
        if (me == 0) fill(memory, LEN, i + 1);
    }
    free(memory);
}

int main(void) {
    start_with_threads();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rounds_done = rounds(ROUNDS) + 1;
    around();
    buffer = malloc(LEN);
    fill(buffer, LEN, me);
    start_threads(SENDERS + READERS, sender);
    received();
    MPI_Barrier(MPI_COMM_WORLD);
    stop = 1;
    join_threads(SENDERS + READERS);
    free(buffer);
    return finish();
}
