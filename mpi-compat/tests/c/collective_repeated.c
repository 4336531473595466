/* A call that is repeated with other buffers, between calls with other arguments, has the result of its own arguments.
   ranks 1 2 3 5 */
#include "check.h"

enum { MOST = 8, LEN = 6 };

static int rank, size;
static int in[3][MOST * LEN], out[3][MOST * LEN];

static void reset(int turn) {
    for (int which = 0; which < 3; which++)
        for (int i = 0; i < MOST * LEN; i++) {
            in[which][i] = 1000 * turn + 100 * which + 10 * rank + i;
            out[which][i] = -1;
        }
}

/* Element i of buffer `which` of a rank. */
static int of(int turn, int which, int from, int i) {
    return 1000 * turn + 100 * which + 10 * from + i;
}

static void reductions(int turn, int which, int into) {
    int n = 1 + turn % 3, root = turn % size;
    MPI_Op op = turn % 4 == 3 ? MPI_MAX : MPI_SUM;
    OK(MPI_Allreduce(in[which], out[into], n, MPI_INT, op, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++) {
        int sum = 0;
        for (int r = 0; r < size; r++) sum += of(turn, which, r, i);
        CHECK(out[into][i] == (op == MPI_MAX ? of(turn, which, size - 1, i) : sum));
    }
    CHECK(out[into][n] == -1);
    /* The same call in place, and of another type of the same length. */
    unsigned *place = (unsigned *)out[into] + LEN;
    memcpy(place, in[which], n * sizeof(int));
    OK(MPI_Allreduce(MPI_IN_PLACE, place, n, MPI_UNSIGNED, op, MPI_COMM_WORLD));
    CHECK(memcmp(place, out[into], n * sizeof(int)) == 0);
    memset(place, -1, LEN * sizeof(int));
    OK(MPI_Reduce(in[which], place, n, MPI_INT, op, root, MPI_COMM_WORLD));
    if (rank == root) CHECK(memcmp(place, out[into], n * sizeof(int)) == 0);
    else CHECK(*place == (unsigned)-1);
    OK(MPI_Scan(in[which], place, n, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
    CHECK(place[0] == (unsigned)of(turn, which, rank, 0));
    OK(MPI_Reduce_scatter_block(in[which], place, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD));
    CHECK(place[0] == (unsigned)of(turn, which, 0, rank));
}

static void transfers(int turn, int which, int into) {
    int n = 1 + turn % 2, root = (turn + 1) % size;
    OK(MPI_Alltoall(in[which], n, MPI_INT, out[into], n, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < n * size; i++) CHECK(out[into][i] == of(turn, which, i / n, rank * n + i % n));
    OK(MPI_Allgather(in[which], n, MPI_INT, out[into], n * sizeof(int), MPI_BYTE, MPI_COMM_WORLD));
    for (int i = 0; i < n * size; i++) CHECK(out[into][i] == of(turn, which, i / n, i % n));
    CHECK(out[into][n * size] == -1);
    memset(out[into], -1, n * size * sizeof(int));
    OK(MPI_Gather(in[which], n, MPI_INT, out[into], n, MPI_INT, root, MPI_COMM_WORLD));
    for (int i = 0; i < n * size; i++) CHECK(out[into][i] == (rank == root ? of(turn, which, i / n, i % n) : -1));
    memset(out[into], -1, n * size * sizeof(int));
    if (rank == root) memcpy(out[into] + rank * n, in[which], n * sizeof(int));
    OK(MPI_Gather(rank == root ? MPI_IN_PLACE : in[which], n, MPI_INT, out[into], n, MPI_INT, root, MPI_COMM_WORLD));
    for (int i = 0; i < n * size; i++) CHECK(out[into][i] == (rank == root ? of(turn, which, i / n, i % n) : -1));
    OK(MPI_Scatter(in[which], n, MPI_INT, out[into], n, MPI_INT, root, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++) CHECK(out[into][i] == of(turn, which, root, rank * n + i));
    memcpy(out[into], in[which], n * sizeof(int));
    OK(MPI_Bcast(out[into], n, MPI_INT, root, MPI_COMM_WORLD));
    for (int i = 0; i < n; i++) CHECK(out[into][i] == of(turn, which, root, i));
}

/* More calls than a library may keep anything of, with the same lengths and other roots, operators and types. */
static void many(void) {
    const MPI_Op ops[4] = {MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD};
    const MPI_Datatype types[3] = {MPI_INT, MPI_UNSIGNED, MPI_INT32_T};
    unsigned any = 1;
    for (int call = 0; call < rounds(5000); call++) {
        any = any * 1103515245 + 12345;
        int choice = any >> 8 & 0xffff, root = choice % size, op = choice >> 2 & 3, n = 1 + (choice >> 5) % 8;
        for (int i = 0; i < n; i++) in[0][i] = rank + i, out[0][i] = -1;
        OK(MPI_Reduce(in[0], out[0], n, types[choice % 3], ops[op], root, MPI_COMM_WORLD));
        for (int i = 0; i < n; i++) {
            int sum = 0, product = 1;
            for (int r = 0; r < size; r++) sum += r + i, product *= r + i;
            const int results[4] = {sum, size - 1 + i, i, product};
            CHECK(out[0][i] == (rank == root ? results[op] : -1));
        }
    }
}

/* A pair type: its elements have gaps at the end. */
static void pairs(int turn, int which) {
    struct { double value; int at; } mine[2] = {{turn + rank, rank}, {turn - rank, which}}, best[2][2];
    for (int i = 0; i < 2; i++) {
        memset(best[i], -1, sizeof best[i]);
        OK(MPI_Allreduce(mine, best[i], 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
        CHECK(best[i][0].value == turn + size - 1 && best[i][0].at == size - 1);
        CHECK(best[i][1].value == turn && best[i][1].at == which);
    }
}

/* A type that is freed, and another one, which may get its handle. */
static void types(int turn) {
    int length = 1 + turn % 2, bad = 0;
    MPI_Datatype type;
    MPI_Type_contiguous(length, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < 2; i++) OK(MPI_Allgather(in[0], 1, type, out[2], 1, type, MPI_COMM_WORLD));
    for (int i = 0; i < length * size; i++) bad |= out[2][i] != of(turn, 0, i / length, i % length);
    CHECK(bad == 0);
    MPI_Type_free(&type);
}

int main(void) {
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < (is_emulated() ? 6 : 24); turn++) {
        int which = turn % 3, into = turn * 5 % 3;
        reset(turn);
        reductions(turn, which, into);
        reset(turn);
        transfers(turn, (which + 1) % 3, into);
        pairs(turn, which);
        types(turn);
    }
    many();
    return finish();
}
