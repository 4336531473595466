/* A child made by fork has its own copy of the memory of a window: the bytes of the moment of the fork. It does not see
   what its parent stores and what peers put later, and no rank sees what it stores. Its end changes nothing of the job.
   ranks 2
   not on peers: not promised */
#include "fork.h"
#include "rma.h"

enum { LEN = 300 * 1000, PUT_AT = 100 * 1000, STORED_AT = 200 * 1000, BYTES = 50 * 1000 };

static unsigned char *memory, *expected;

static int is_expected(const void *bytes) { return memcmp(bytes, expected, LEN) == 0; }

/* What the child sees, before and after its parent has stored and its peer has put, and what it stores. */
static void in_child(Child *child) {
    CHECK(is_expected(memory));
    hear(child->to_child);
    CHECK(is_expected(memory));
    memset(memory, 99, LEN);
    tell(child->to_parent);
    hear(child->to_child);
    for (int i = 0; i < LEN; i++) CHECK(memory[i] == 99);
    end_child();
}

static void one_fork(int seed) {
    Child child;
    int peer = 1 - me;
    unsigned char *data = malloc(LEN);
    if (begin_child(&child)) in_child(&child);
    MPI_Barrier(MPI_COMM_WORLD);
    fill(data, BYTES, seed + peer);
    fill(memory + STORED_AT, BYTES, seed + 5);
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(data, BYTES, MPI_BYTE, peer, PUT_AT, BYTES, MPI_BYTE, win));
    OK(MPI_Win_fence(0, win));
    fill(expected + PUT_AT, BYTES, seed + me);
    fill(expected + STORED_AT, BYTES, seed + 5);
    CHECK(is_expected(memory));
    tell(child.to_child);
    hear(child.to_parent);
    CHECK(is_expected(memory));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Get(data, LEN, MPI_BYTE, peer, 0, LEN, MPI_BYTE, win));
    OK(MPI_Win_fence(0, win));
    CHECK(memcmp(data, expected, PUT_AT) == 0 && is_filled(data + PUT_AT, BYTES, seed + peer));
    CHECK(memcmp(data + STORED_AT, expected + STORED_AT, LEN - STORED_AT) == 0);
    tell(child.to_child);
    CHECK(ended_well(&child));
    CHECK(is_expected(memory));
    free(data);
}

int main(void) {
    start();
    me = rank_of(MPI_COMM_WORLD);
    memory = malloc(LEN);
    expected = malloc(LEN);
    fill(memory, LEN, 1);
    memcpy(expected, memory, LEN);
    OK(MPI_Win_create(memory, LEN, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int i = 0; i < 4; i++) one_fork(10 * i);
    overwritten(win, MPI_COMM_WORLD);
    memcpy(expected, memory, LEN);
    OK(MPI_Win_free(&win));
    CHECK(is_expected(memory));
    free(memory);
    free(expected);
    return finish();
}
