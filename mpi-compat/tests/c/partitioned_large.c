/* Partitions of a megabyte, more of them on one side than on the other, between all neighbours at once.
   ranks 2 3 */
#include "check.h"

enum { MIB = 1 << 20 };

int main(void) {
    MPI_Request requests[2];
    unsigned char *out = malloc(6 * MIB), *in = calloc(6, MIB);
    int rank, size;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    OK(MPI_Precv_init(in, 2, 3 * MIB, MPI_BYTE, (rank + 1) % size, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Psend_init(out, 6, MIB, MPI_BYTE, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < 2; round++) {
        fill(out, 6 * MIB, rank + round);
        OK(MPI_Startall(2, requests));
        OK(MPI_Pready_range(0, 5, requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        CHECK(is_filled(in, 6 * MIB, (rank + 1) % size + round));
    }
    for (int i = 0; i < 2; i++) OK(MPI_Request_free(&requests[i]));
    return finish();
}
