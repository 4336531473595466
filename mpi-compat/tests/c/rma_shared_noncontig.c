/* With alloc_shared_noncontig each rank's memory may begin at any address; stores are visible after synchronization.
   ranks 2 3 */
#include "rma.h"

int main(void) {
    int unit, *base, *other;
    MPI_Aint bytes;
    MPI_Info info;
    MPI_Comm node = begin_sharing();
    info = info_with("alloc_shared_noncontig", "true");
    OK(MPI_Win_allocate_shared(12, 4, info, node, &base, &win));
    OK(MPI_Info_free(&info));
    for (int round = 0; round < 20; round++) {
        OK(MPI_Win_fence(0, win));
        OK(MPI_Win_shared_query(win, right(), &bytes, &unit, &other));
        CHECK(bytes == 12 && unit == 4);
        other[2] = 10 * round + me;
        OK(MPI_Win_fence(0, win));
        CHECK(base[2] == 10 * round + left());
    }
    OK(MPI_Win_free(&win));
    return finish();
}
