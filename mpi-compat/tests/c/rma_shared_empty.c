/* Ranks without memory in a contiguous shared window have an address in it, between those of their neighbours, from
   which offsets can be computed.
   ranks 1 2 3
   not on peers: not promised */
#include "rma.h"

int main(void) {
    MPI_Aint bytes;
    MPI_Comm node;
    char *memory, *first, *base, *attribute;
    int unit, flag, offset = 0;
    start();
    node = sharing();
    me = rank_of(node);
    MPI_Comm_size(node, &size);
    /* With two ranks, the last one has none either. */
    OK(MPI_Win_allocate_shared(me % 2 ? 0 : 16, 1, MPI_INFO_NULL, node, &memory, &win));
    OK(MPI_Win_shared_query(win, 0, &bytes, &unit, &first));
    CHECK(first != NULL && bytes == 16);
    for (int rank = 0; rank < size; rank++) {
        OK(MPI_Win_shared_query(win, rank, &bytes, &unit, &base));
        CHECK(bytes == (rank % 2 ? 0 : 16) && unit == 1 && base == first + offset);
        if (rank == me) CHECK(memory == base);
        offset += (int)bytes;
    }
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &attribute, &flag));
    CHECK(flag && attribute == memory);
    OK(MPI_Win_free(&win));
    return finish();
}
