/* Packed data is sent as MPI_PACKED and received as its elements, and vice versa.
   ranks 2 */
#include "check.h"

int main(void) {
    int values[4] = {1, 2, 3, 4}, got[4] = {0}, at = 0;
    char packed[200];
    start();
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Pack(values, 4, MPI_INT, packed, sizeof packed, &at, MPI_COMM_WORLD));
        OK(MPI_Send(packed, at, MPI_PACKED, 1, 0, MPI_COMM_WORLD));
        OK(MPI_Send(values, 4, MPI_INT, 1, 0, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(got, 4, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(memcmp(got, values, sizeof got) == 0);
        memset(got, 0, sizeof got);
        OK(MPI_Recv(packed, sizeof packed, MPI_PACKED, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Unpack(packed, sizeof packed, &at, got, 4, MPI_INT, MPI_COMM_WORLD));
        CHECK(memcmp(got, values, sizeof got) == 0);
    }
    return finish();
}
