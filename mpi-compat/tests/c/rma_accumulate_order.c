/* Accumulates of one origin to one address take effect in the order of their calls, in every kind of epoch.
   ranks 2 3 */
#include "check.h"

enum { LEN = 200 };

int main(void) {
    int size, *base, next[LEN], got[LEN];
    MPI_Win win;
    MPI_Group world, zero, rest;
    start();
    int me = rank_of(MPI_COMM_WORLD), first = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &first, &zero);
    MPI_Group_excl(world, 1, &first, &rest);
    OK(MPI_Win_allocate((MPI_Aint)size * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    for (int kind = 0; kind < 3; kind++) {
        base[me] = -1;
        for (int r = 0; r < size; r++) base[r] = -1;
        MPI_Barrier(MPI_COMM_WORLD);
        if (kind == 0) OK(MPI_Win_fence(0, win));
        if (kind == 1 && me) OK(MPI_Win_start(zero, 0, win));
        if (kind == 1 && !me) OK(MPI_Win_post(rest, 0, win));
        if (kind == 2) OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
        for (int i = 0; me && i < LEN; i++) {
            next[i] = i;
            got[i] = -7;
            OK(MPI_Get_accumulate(&next[i], 1, MPI_INT, &got[i], 1, MPI_INT, 0, me, 1, MPI_INT, MPI_REPLACE, win));
        }
        if (kind == 0) OK(MPI_Win_fence(0, win));
        if (kind == 1 && me) OK(MPI_Win_complete(win));
        if (kind == 1 && !me) OK(MPI_Win_wait(win));
        if (kind == 2) OK(MPI_Win_unlock(0, win));
        for (int i = 0; me && i < LEN; i++) CHECK(got[i] == i - 1);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int r = 1; !me && r < size; r++) CHECK(base[r] == LEN - 1);
    }
    OK(MPI_Win_free(&win));
    MPI_Group_free(&world);
    MPI_Group_free(&zero);
    MPI_Group_free(&rest);
    return finish();
}
