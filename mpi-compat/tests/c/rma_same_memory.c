/* Several windows on the same memory, and windows that overlap.
   ranks 1 2 3 */
#include "rma.h"

enum { LEN = 3000 };

int main(void) {
    int size;
    MPI_Win whole, again, part;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (me + 1) % size, left = (me + size - 1) % size, *base = calloc(LEN, sizeof(int)), value, got;
    OK(MPI_Win_create(base, LEN * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &whole));
    OK(MPI_Win_create(base, LEN * sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &again));
    OK(MPI_Win_create(base + 1000, 1500 * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &part));
    for (int i = 0; i < 1500; i += 499) {
        value = 10 * i + me;
        OK(MPI_Win_fence(0, part));
        OK(MPI_Put(&value, 1, MPI_INT, right, i, 1, MPI_INT, part));
        OK(MPI_Win_fence(0, part));
        CHECK(base[1000 + i] == 10 * i + left);
        OK(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, whole));
        OK(MPI_Get(&got, 1, MPI_INT, right, 1000 + i, 1, MPI_INT, whole));
        OK(MPI_Win_unlock(right, whole));
        CHECK(got == value);
        MPI_Barrier(MPI_COMM_WORLD);
        base[7] = i + 5 * me;
        OK(MPI_Win_fence(0, again));
        OK(MPI_Get(&got, 1, MPI_INT, right, 7 * sizeof(int), 1, MPI_INT, again));
        OK(MPI_Win_fence(0, again));
        CHECK(got == i + 5 * right);
    }
    OK(MPI_Win_free(&whole));
    OK(MPI_Win_fence(0, again));
    OK(MPI_Put(&me, 1, MPI_INT, right, 0, 1, MPI_INT, again));
    OK(MPI_Win_fence(0, again));
    CHECK(base[0] == left && base[1000] == left);
    end_window(&part);
    CHECK(base[0] == left && base[999] == 0 && base[2500] == 0);
    end_window(&again);
    free(base);
    return finish();
}
