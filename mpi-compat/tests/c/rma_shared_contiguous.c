/* The memory of a shared window is contiguous: each rank's memory follows that of the rank before it, and all may load
   and store it; operations access it too.
   ranks 1 2 4 */
#include "rma.h"

int main(void) {
    int unit, *base, *first, *other, *flavor, flag, value, got;
    MPI_Aint bytes;
    MPI_Comm node = begin_sharing();
    int mine = me == 1 ? 0 : me + 2, total = 0;
    OK(MPI_Win_allocate_shared((MPI_Aint)mine * 4, 4, MPI_INFO_NULL, node, &base, &win));
    OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag));
    CHECK(flag && *flavor == MPI_WIN_FLAVOR_SHARED);
    OK(MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &first));
    CHECK(bytes == 8 && unit == 4);
    OK(MPI_Win_lock_all(0, win));
    for (int i = 0; i < mine; i++) base[i] = 100 * me + i;
    OK(MPI_Win_sync(win));
    MPI_Barrier(node);
    OK(MPI_Win_sync(win));
    for (int r = 0; r < size; r++) {
        int len = r == 1 ? 0 : r + 2;
        OK(MPI_Win_shared_query(win, r, &bytes, &unit, &other));
        CHECK(bytes == len * 4);
        if (len) CHECK(other == first + total);
        for (int i = 0; i < len; i++) CHECK(first[total + i] == 100 * r + i);
        total += len;
    }
    MPI_Barrier(node);
    /* Operations access the part of their target. */
    if (right() != 1) {
        value = 1000 + me;
        OK(MPI_Put(&value, 1, MPI_INT, right(), 1, 1, MPI_INT, win));
        OK(MPI_Accumulate(&(int[2]){5, 0}, 2, MPI_INT, right(), 0, 2, MPI_INT, MPI_SUM, win));
        OK(MPI_Win_flush(right(), win));
        OK(MPI_Fetch_and_op(&value, &got, MPI_INT, right(), 1, MPI_NO_OP, win));
        OK(MPI_Win_flush(right(), win));
        CHECK(got == 1000 + me);
    }
    OK(MPI_Win_unlock_all(win));
    MPI_Barrier(node);
    if (me != 1) CHECK(base[0] == 100 * me + 5 && base[1] == 1000 + left());
    for (int i = 2; i < mine; i++) CHECK(base[i] == 100 * me + i);
    OK(MPI_Win_free(&win));
    return finish();
}
