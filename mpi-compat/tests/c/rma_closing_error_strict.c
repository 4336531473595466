/* An operation that fails is an error of its own call or of the call that closes its epoch, which synchronizes
   nevertheless: it does not affect the other ranks, other operations, and later epochs.
   ranks 2 3
   not on peers: integers that are not aligned are compared and swapped there, or end the program */
#include "rma.h"

enum { FENCE, PSCW, LOCK, LOCK_ALL, SYNCS };
enum { DYNAMIC, CREATED, ALLOCATED, KINDS };

static char memory[1 << 16];

static int open_and_close(int sync, int opens, int to, MPI_Group all) {
    switch (sync) {
    case FENCE: return MPI_Win_fence(opens ? MPI_MODE_NOPRECEDE : MPI_MODE_NOSUCCEED, win);
    case PSCW:
        if (opens) return MPI_Win_post(all, 0, win) | MPI_Win_start(all, 0, win);
        else {
            int code = MPI_Win_complete(win);
            OK(MPI_Win_wait(win));
            return code;
        }
    case LOCK: return opens ? MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win) : MPI_Win_unlock(to, win);
    default: return opens ? MPI_Win_lock_all(0, win) : MPI_Win_unlock_all(win);
    }
}

/* Rank 0 puts, swaps at an odd place, and puts; all others put. Exactly one of the calls fails, at rank 0 alone. */
static void epoch(int sync, const MPI_Aint *at, MPI_Group all, int odd) {
    static int values[2];
    static int one = 1, zero = 0, old;
    int to = right(), failed = 0;
    values[0] = 10 * me + odd;
    values[1] = 20 * me + odd;
    OK(open_and_close(sync, 1, to, all));
    OK(MPI_Put(values, 1, MPI_INT, to, MPI_Aint_add(at[to], 16), 1, MPI_INT, win));
    if (me == 0 && odd) failed += MPI_Compare_and_swap(&one, &zero, &old, MPI_INT, to, MPI_Aint_add(at[to], 1), win) != 0;
    OK(MPI_Put(values + 1, 1, MPI_INT, to, MPI_Aint_add(at[to], 32), 1, MPI_INT, win));
    if (me == 0 && odd && (sync == LOCK || sync == LOCK_ALL)) failed += MPI_Win_flush(to, win) != 0;
    failed += open_and_close(sync, 0, to, all) != 0;
    CHECK(failed == (me == 0 && odd));
}

int main(void) {
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Group all;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    for (int kind = 0; kind < KINDS; kind++)
        for (int sync = 0; sync < SYNCS; sync++) {
            char *base = memory;
            MPI_Aint mine = 0, at[3];
            if (kind == DYNAMIC) {
                OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
                OK(MPI_Win_attach(win, memory, sizeof memory));
                OK(MPI_Get_address(memory, &mine));
            } else if (kind == CREATED)
                OK(MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
            else
                OK(MPI_Win_allocate(sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
            OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
            OK(MPI_Allgather(&mine, 1, MPI_AINT, at, 1, MPI_AINT, MPI_COMM_WORLD));
            memset(base, 0, 64);
            for (int odd = 1; odd >= 0; odd--) {
                MPI_Barrier(MPI_COMM_WORLD);
                epoch(sync, at, all, odd);
                MPI_Barrier(MPI_COMM_WORLD);
                CHECK(*(int *)(base + 16) == 10 * left() + odd && *(int *)(base + 32) == 20 * left() + odd);
                CHECK(*(int *)base == 0 && base[4] == 0);
            }
            overwritten_at(win, MPI_COMM_WORLD, base, mine, 64);
            if (kind == DYNAMIC) OK(MPI_Win_detach(win, memory));
            OK(MPI_Win_free(&win));
        }
    OK(MPI_Group_free(&all));
    return finish();
}
