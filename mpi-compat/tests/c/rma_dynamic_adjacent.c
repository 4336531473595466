/* One operation may access several regions that were attached separately and are adjacent, with elements that lie in
   two of them and layouts with unattached gaps; if bytes are not attached it is an error, and nothing is changed.
   ranks 1 2 3
   not on peers: an access to memory that is not attached ends the program there */
#include "rma.h"

enum { REGION = 1020, REGIONS = 8, BYTES = REGION * REGIONS };

static char memory[BYTES + 2 * REGION] __attribute__((aligned(4096)));
static const int lock_all = 2;

static void open_epoch(int kind, MPI_Group all) {
    /* A lock does not wait for ranks that still check. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (kind == 0) OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    if (kind == 1) OK(MPI_Win_post(all, 0, win));
    if (kind == 1) OK(MPI_Win_start(all, 0, win));
    if (kind == lock_all) OK(MPI_Win_lock_all(0, win));
}

static void close_epoch(int kind) {
    if (kind == 0) OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    if (kind == 1) OK(MPI_Win_complete(win));
    if (kind == 1) OK(MPI_Win_wait(win));
    if (kind == lock_all) OK(MPI_Win_unlock_all(win));
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(void) {
    MPI_Aint at, *all;
    MPI_Group world;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    all = malloc(size * sizeof *all);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Get_address(memory, &at));
    OK(MPI_Allgather(&at, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD));
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    for (int i = 0; i < REGIONS; i++) OK(MPI_Win_attach(win, memory + REGION * i, REGION));
    /* One more region, behind a gap. */
    OK(MPI_Win_attach(win, memory + BYTES + REGION, REGION));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Aint there = all[right()];
    /* Blocks of 3 integers at distances of 300: 3 regions; and one block on each side of the gap. */
    MPI_Datatype blocks, gap;
    OK(MPI_Type_vector(7, 3, 100, MPI_INT, &blocks));
    OK(MPI_Type_commit(&blocks));
    OK(MPI_Type_create_hindexed_block(2, 3, (MPI_Aint[]){BYTES - 12, BYTES + REGION}, MPI_INT, &gap));
    OK(MPI_Type_commit(&gap));
    for (int kind = 0; kind < 3; kind++) {
        unsigned char data[3 * REGION], got[3 * REGION];
        fill(memory, sizeof memory, 10 * kind + me);
        fill(data, sizeof data, 10 * kind + me + 5);
        open_epoch(kind, world);
        OK(MPI_Get(got, 2500, MPI_BYTE, right(), MPI_Aint_add(there, 500), 2500, MPI_BYTE, win));
        close_epoch(kind);
        for (int i = 0; i < 2500; i++) CHECK(got[i] == byte_at(10 * kind + right(), 500 + i));
        open_epoch(kind, world);
        OK(MPI_Put(data, 2500, MPI_BYTE, right(), MPI_Aint_add(there, 1000), 2500, MPI_BYTE, win));
        close_epoch(kind);
        CHECK(is_filled(memory, 1000, 10 * kind + me));
        CHECK(is_filled(memory + 1000, 2500, 10 * kind + left() + 5));

        /* Layouts. */
        int many[21], former[21];
        for (int i = 0; i < 21; i++) many[i] = 100 * me + i;
        open_epoch(kind, world);
        OK(MPI_Put(many, 21, MPI_INT, right(), there, 1, blocks, win));
        OK(MPI_Put(many, 6, MPI_INT, right(), there, 1, gap, win));
        close_epoch(kind);
        for (int i = 0; i < 21; i++) CHECK(((int *)memory)[i / 3 * 100 + i % 3] == 100 * left() + i);
        for (int i = 0; i < 3; i++) CHECK(((int *)(memory + BYTES - 12))[i] == 100 * left() + i);
        for (int i = 0; i < 3; i++) CHECK(((int *)(memory + BYTES + REGION))[i] == 100 * left() + 3 + i);
        open_epoch(kind, world);
        OK(MPI_Get_accumulate(many, 21, MPI_INT, former, 21, MPI_INT, right(), there, 1, blocks, MPI_SUM, win));
        close_epoch(kind);
        for (int i = 0; i < 21; i++) CHECK(former[i] == many[i]);
        for (int i = 0; i < 21; i++) CHECK(((int *)memory)[i / 3 * 100 + i % 3] == 2 * (100 * left() + i));

        /* Long integers: regions end inside of one. All ranks change those of rank 0. */
        long *sums = (long *)memory, ones[400], olds[400];
        for (int i = 0; i < 400; i++) ones[i] = 1 << 20, sums[i] = i;
        MPI_Aint first = all[0];
        open_epoch(kind, world);
        OK(MPI_Accumulate(ones, 400, MPI_LONG, 0, first, 400, MPI_LONG, MPI_SUM, win));
        OK(MPI_Get_accumulate(ones, 400, MPI_LONG, olds, 400, MPI_LONG, 0, first, 400, MPI_LONG, MPI_SUM, win));
        close_epoch(kind);
        for (int i = 0; i < 400; i++) {
            if (me == 0) CHECK(sums[i] == i + ((long)size << 21));
            CHECK(olds[i] % (1 << 20) == i && olds[i] >> 20 >= 1 && olds[i] >> 20 < 2 * size);
        }
        long swap = 7, last = 127 + ((long)size << 21), old, fetched, read;
        MPI_Aint divided = MPI_Aint_add(first, 127 * 8);
        open_epoch(kind, world);
        if (me == size - 1) {
            OK(MPI_Compare_and_swap(&swap, &last, &old, MPI_LONG, 0, divided, win));
            OK(MPI_Fetch_and_op(&swap, &fetched, MPI_LONG, 0, divided, MPI_PROD, win));
            OK(MPI_Fetch_and_op(NULL, &read, MPI_LONG, 0, divided, MPI_NO_OP, win));
        }
        close_epoch(kind);
        if (me == size - 1) CHECK(old == last && fetched == 7 && read == 49);
        if (me == 0) CHECK(sums[127] == 49);

        /* Pairs are changed as a whole. */
        struct {
            double value;
            int rank;
        } best[200], *pairs = (void *)memory;
        for (int i = 0; i < 200; i++) best[i].value = me, best[i].rank = me, pairs[i].value = -1;
        open_epoch(kind, world);
        OK(MPI_Accumulate(best, 200, MPI_DOUBLE_INT, 0, first, 200, MPI_DOUBLE_INT, MPI_MAXLOC, win));
        close_epoch(kind);
        for (int i = 0; i < 200 && me == 0; i++) CHECK(pairs[i].value == size - 1 && pairs[i].rank == size - 1);
        overwritten_at(win, MPI_COMM_WORLD, memory, at, BYTES);
    }

    /* Bytes of the gap. */
    long nothing[200] = {0};
    memset(memory, 1, sizeof memory);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win));
    OK(MPI_Win_flush(right(), win));
    MPI_Aint close = MPI_Aint_add(there, BYTES - 80);
    int codes = MPI_Put(nothing, 11, MPI_LONG, right(), close, 11, MPI_LONG, win);
    if (codes == MPI_SUCCESS) codes = MPI_Win_unlock(right(), win);
    else OK(MPI_Win_unlock(right(), win));
    CHECK(class_of(codes) == MPI_ERR_RMA_RANGE);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < BYTES; i++) CHECK(memory[i] == 1);
    for (int i = 0; i < REGIONS; i++) OK(MPI_Win_detach(win, memory + REGION * i));
    OK(MPI_Win_detach(win, memory + BYTES + REGION));
    OK(MPI_Type_free(&blocks));
    OK(MPI_Type_free(&gap));
    OK(MPI_Win_free(&win));
    MPI_Group_free(&world);
    free(all);
    return finish();
}
