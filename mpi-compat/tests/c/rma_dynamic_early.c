/* An origin may issue operations before their target has attached the memory, as long as the target attaches it before its own
   fence or post (MPI-5.0 sections 12.5.1 and 12.5.2).
   ranks 1 2 3 */
#include <unistd.h>

#include "rma.h"

enum { N = 600 };

static double mine[N];

static void operate(int to, MPI_Aint at, const double *data, double *got, MPI_Datatype every_second) {
    static double one = 1;
    static long swap = 1, zero = 0;
    OK(MPI_Get(got, 1, MPI_DOUBLE, to, at, 1, MPI_DOUBLE, win));
    OK(MPI_Put(data, 100, MPI_DOUBLE, to, MPI_Aint_add(at, 800), 100, MPI_DOUBLE, win));
    OK(MPI_Put(data, 50, MPI_DOUBLE, to, MPI_Aint_add(at, 1600), 1, every_second, win));
    OK(MPI_Accumulate(&one, 1, MPI_DOUBLE, to, MPI_Aint_add(at, 16), 1, MPI_DOUBLE, MPI_SUM, win));
    OK(MPI_Fetch_and_op(&one, got + 1, MPI_DOUBLE, to, MPI_Aint_add(at, 24), MPI_SUM, win));
    OK(MPI_Compare_and_swap(&swap, &zero, got + 2, MPI_LONG, to, MPI_Aint_add(at, 32), win));
    OK(MPI_Accumulate(data, 2, MPI_2INT, to, MPI_Aint_add(at, 40), 2, MPI_2INT, MPI_MAXLOC, win));
}

static int arrived(int from, const double *data, const double *got) {
    long swapped;
    memcpy(&swapped, mine + 4, sizeof swapped);
    int right = got[0] == from && got[1] == 5 && memcmp(got + 2, &(double){0}, 8) == 0;
    right &= mine[2] == 5 && mine[3] == 6 && swapped == 1 && memcmp(mine + 100, data, 800) == 0;
    for (int i = 0; i < 50; i++) right &= mine[200 + 2 * i] == data[i] && mine[201 + 2 * i] == 0;
    return right;
}

int main(void) {
    MPI_Aint at, *all;
    double data[100], got[3];
    MPI_Datatype every_second;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    all = malloc(size * sizeof *all);
    OK(MPI_Get_address(mine, &at));
    OK(MPI_Allgather(&at, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD));
    OK(MPI_Type_vector(50, 1, 2, MPI_DOUBLE, &every_second));
    OK(MPI_Type_commit(&every_second));
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    MPI_Group from = group_of(1, &(int){left()}), to = group_of(1, &(int){right()});
    for (int i = 0; i < 100; i++) data[i] = i + 1;
    for (int kind = 0; kind < 3; kind++) {
        memset(mine, 0, sizeof mine);
        mine[0] = me, mine[2] = 4, mine[3] = 5;
        memset(got, 255, sizeof got);
        MPI_Barrier(MPI_COMM_WORLD);
        /* The last rank is late, so that the operations of the one before it are. */
        if (me == size - 1) usleep(30000);
        if (kind < 2) {
            OK(MPI_Win_attach(win, mine, sizeof mine));
            OK(MPI_Win_fence(kind == 0 ? MPI_MODE_NOPRECEDE : 0, win));
            operate(right(), all[right()], data, got, every_second);
            OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
        } else {
            OK(MPI_Win_attach(win, mine, sizeof mine));
            OK(MPI_Win_post(from, 0, win));
            OK(MPI_Win_start(to, 0, win));
            operate(right(), all[right()], data, got, every_second);
            OK(MPI_Win_complete(win));
            OK(MPI_Win_wait(win));
        }
        CHECK(arrived(right(), data, got));
        overwritten_at(win, MPI_COMM_WORLD, mine, at, sizeof mine);
        OK(MPI_Win_detach(win, mine));
    }
    OK(MPI_Group_free(&from));
    OK(MPI_Group_free(&to));
    OK(MPI_Type_free(&every_second));
    OK(MPI_Win_free(&win));
    free(all);
    return finish();
}
