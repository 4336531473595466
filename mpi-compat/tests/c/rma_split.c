/* Windows on split and merged communicators; calls on the communicator between them.
   ranks 3 4 */
#include "rma.h"

int main(void) {
    int size, part, base = -1, value;
    MPI_Comm half, inter, merged;
    MPI_Win win, all;
    MPI_Request request;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    OK(MPI_Comm_split(MPI_COMM_WORLD, me % 2, -me, &half));
    MPI_Comm_size(half, &size);
    part = rank_of(half);
    OK(MPI_Win_create(&base, sizeof base, 1, MPI_INFO_NULL, half, &win));
    value = me;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_INT, (part + 1) % size, 0, 1, MPI_INT, win));
    /* Other collectives of the communicator may stand in another order at other ranks. */
    if (part == 0) OK(MPI_Ibarrier(half, &request));
    OK(MPI_Win_fence(0, win));
    if (part != 0) OK(MPI_Ibarrier(half, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(base % 2 == me % 2);
    CHECK(base == (part == 0 ? me % 2 : me + 2));
    overwritten(win, half);
    OK(MPI_Win_free(&win));
    /* The leader of the even ranks is the greatest of them, and so is that of the odd ones. */
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int leader = size - 1 - (size - 1 - (1 - me % 2)) % 2;
    OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, leader, 0, &inter));
    OK(MPI_Intercomm_merge(inter, me % 2, &merged));
    OK(MPI_Win_create(&base, sizeof base, 1, MPI_INFO_NULL, merged, &all));
    part = rank_of(merged);
    OK(MPI_Win_lock_all(0, all));
    OK(MPI_Put(&part, 1, MPI_INT, (part + 1) % size, 0, 1, MPI_INT, all));
    OK(MPI_Win_unlock_all(all));
    OK(MPI_Barrier(merged));
    CHECK(base == (part + size - 1) % size);
    overwritten(all, merged);
    OK(MPI_Win_free(&all));
    OK(MPI_Comm_free(&inter));
    OK(MPI_Comm_free(&merged));
    OK(MPI_Comm_free(&half));
    return finish();
}
