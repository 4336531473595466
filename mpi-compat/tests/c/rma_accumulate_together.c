/* Long and short sums of several origins on the same elements in one epoch, some of which fetch, together with atomic
   reads.
   ranks 2 3 4 */
#include "rma.h"

enum { N = 700, EVERY = 50 };

static double *memory, ones[N], former[N / EVERY], seen[N];

/* One to each element: by one call, by two that are cut at another place on each rank, and to some by calls of one element. */
static void add(int target) {
    int cut = 100 + 150 * me;
    OK(MPI_Accumulate(ones, N, MPI_DOUBLE, target, 0, N, MPI_DOUBLE, MPI_SUM, win));
    for (int i = 0; i < N; i += EVERY)
        OK(MPI_Fetch_and_op(ones, &former[i / EVERY], MPI_DOUBLE, target, i, MPI_SUM, win));
    OK(MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, seen, N, MPI_DOUBLE, target, 0, N, MPI_DOUBLE, MPI_NO_OP, win));
    OK(MPI_Accumulate(ones, cut, MPI_DOUBLE, target, 0, cut, MPI_DOUBLE, MPI_SUM, win));
    OK(MPI_Accumulate(ones, N - cut, MPI_DOUBLE, target, cut, N - cut, MPI_DOUBLE, MPI_SUM, win));
}

/* Additions to element i by the calls of a rank. */
static int added(int i) { return i % EVERY == 0 ? 3 : 2; }

/* Checks the values that `origins` ranks have left at a rank, and those that this rank has read there if it is an origin. */
static void check(int target, int origins, int is_origin) {
    for (int i = 0; i < N; i++) {
        int least = 1, most = origins * added(i);
        if (me == target) CHECK(memory[i] == most);
        if (!is_origin) continue;
        if (i % EVERY == 0) {
            CHECK(former[i / EVERY] >= least && former[i / EVERY] < most);
            least = (int)former[i / EVERY] + 1;
        }
        CHECK(seen[i] == (int)seen[i] && seen[i] >= least && seen[i] < most);
    }
}

int main(void) {
    int others[3] = {1, 2, 3}, root = 0;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(N * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    for (int i = 0; i < N; i++) ones[i] = 1;
    MPI_Group group = me == 0 ? group_of(size - 1, others) : group_of(1, &root);
    for (int round = 0; round < 5; round++) {
        int target = round % size;
        memset(memory, 0, N * sizeof(double));
        FENCE();
        add(target);
        OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        check(target, size, 1);
        memset(memory, 0, N * sizeof(double));
        if (me == 0) {
            OK(MPI_Win_post(group, 0, win));
            OK(MPI_Win_wait(win));
        } else {
            OK(MPI_Win_start(group, 0, win));
            add(0);
            OK(MPI_Win_complete(win));
        }
        check(0, size - 1, me != 0);
    }
    OK(MPI_Group_free(&group));
    return done();
}
