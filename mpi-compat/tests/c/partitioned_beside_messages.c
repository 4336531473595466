/* Point-to-point receives with any source and tag do not receive partitioned messages, nor do partitioned receives
   receive point-to-point messages; requests of both kinds can be waited for together.
   ranks 2 */
#include "check.h"

int main(void) {
    MPI_Request requests[2];
    MPI_Status status;
    int parts[2] = {0, 0}, value = 0, rank, flag;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    if (rank == 0) {
        parts[0] = 5;
        parts[1] = 6;
        OK(MPI_Psend_init(parts, 2, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
        OK(MPI_Start(&requests[0]));
        OK(MPI_Pready_range(0, 1, requests[0]));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        value = 7;
        OK(MPI_Isend(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &requests[1]));
    } else {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Wait(&requests[1], &status));
        CHECK(value == 7 && status.MPI_TAG == 3);
        OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        CHECK(flag == 0);
        OK(MPI_Precv_init(parts, 2, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
        OK(MPI_Start(&requests[0]));
    }
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(parts[0] == 5 && parts[1] == 6);
    OK(MPI_Request_free(&requests[0]));
    return finish();
}
