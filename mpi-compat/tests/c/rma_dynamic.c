/* Attached memory is accessed by its address, in every kind of epoch, by all operations; detached memory is replaced.
   ranks 1 2 3 */
#include "rma.h"

enum { PIECES = 20 };

int main(void) {
    int size, *pieces[PIECES], value, got, one = 1;
    MPI_Win win;
    MPI_Group world;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Aint mine[PIECES], *all = malloc(sizeof(MPI_Aint) * PIECES * (size_t)size);
    int right = (me + 1) % size, left = (me + size - 1) % size;
    struct {
        double value;
        int rank;
    } best = {me, me}, before, *pair;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < PIECES; i++) {
            pieces[i] = calloc(10 + (size_t)i, sizeof(int));
            OK(MPI_Win_attach(win, pieces[i], (MPI_Aint)(10 + i) * 4));
            OK(MPI_Get_address(pieces[i], &mine[i]));
            pieces[i][8] = 10 * me + i;
        }
        MPI_Allgather(mine, PIECES, MPI_AINT, all, PIECES, MPI_AINT, MPI_COMM_WORLD);
        if (kind == 0) OK(MPI_Win_fence(0, win));
        if (kind == 1) OK(MPI_Win_post(world, 0, win));
        if (kind == 1) OK(MPI_Win_start(world, 0, win));
        if (kind == 2) OK(MPI_Win_lock_all(0, win));
        if (kind == 3) OK(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win));
        value = 100 * kind + me;
        int sums[PIECES], read[PIECES];
        for (int i = 0; i < PIECES; i++) {
            MPI_Aint at = all[right * PIECES + i];
            OK(MPI_Put(&value, 1, MPI_INT, right, MPI_Aint_add(at, 4 * i), 1, MPI_INT, win));
            OK(MPI_Get(&read[i], 1, MPI_INT, right, i == 8 ? at + 36 : at + 32, 1, MPI_INT, win));
            OK(MPI_Accumulate(&one, 1, MPI_INT, right, i == 9 ? at + 28 : at + 36, 1, MPI_INT, MPI_SUM, win));
        }
        (void)sums;
        if (kind == 0) OK(MPI_Win_fence(0, win));
        if (kind == 1) OK(MPI_Win_complete(win));
        if (kind == 1) OK(MPI_Win_wait(win));
        if (kind == 2) OK(MPI_Win_unlock_all(win));
        if (kind == 3) OK(MPI_Win_unlock(right, win));
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < PIECES; i++) {
            if (i != 8) CHECK(read[i] == 10 * right + i);
            CHECK(pieces[i][i] == 100 * kind + left);
            if (i != 9) CHECK(pieces[i][9] == 1);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < PIECES; i++) {
            if (i == 0) overwritten_at(win, MPI_COMM_WORLD, pieces[i], mine[i], (MPI_Aint)(10 + i) * 4);
            OK(MPI_Win_detach(win, pieces[i]));
            free(pieces[i]);
        }
    }
    /* Atomics: pairs, tickets and swaps at rank 0. */
    pair = calloc(2, sizeof *pair);
    pair[0].value = -1;
    OK(MPI_Win_attach(win, pair, 2 * sizeof *pair));
    OK(MPI_Get_address(pair, &mine[0]));
    MPI_Bcast(&mine[0], 1, MPI_AINT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Get_accumulate(&best, 1, MPI_DOUBLE_INT, &before, 1, MPI_DOUBLE_INT, 0, mine[0], 1, MPI_DOUBLE_INT, MPI_MAXLOC,
                          win));
    int sum = 0, all_sums;
    for (int i = 0; i < 50; i++) {
        OK(MPI_Fetch_and_op(&one, &got, MPI_INT, 0, mine[0] + 16, MPI_SUM, win));
        OK(MPI_Win_flush(0, win));
        sum += got;
    }
    int n = 50 * size;
    OK(MPI_Win_unlock_all(win));
    MPI_Reduce(&sum, &all_sums, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (me == 0) {
        CHECK(all_sums == n * (n - 1) / 2);
        CHECK(*(int *)&pair[1] == n);
        CHECK(pair[0].value == size - 1 && pair[0].rank == size - 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_detach(win, pair));
    OK(MPI_Win_free(&win));
    MPI_Group_free(&world);
    free(pair);
    free(all);
    return finish();
}
