/* A partitioned receive progresses while its process waits in other calls, and a receive that starts late gets
   partitions that were sent earlier.
   ranks 2 */
#include "check.h"

enum { LEN = 300000 };

int main(void) {
    MPI_Request request;
    int rank, value = 0;
    unsigned char *data = calloc(2, LEN);
    start();
    rank = rank_of(MPI_COMM_WORLD);
    if (rank == 0) {
        /* The receive is started before there is a send. */
        OK(MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        fill(data, 2 * LEN, 1);
        OK(MPI_Psend_init(data, 2, LEN, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Pready_range(0, 1, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Send(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD));
        OK(MPI_Request_free(&request));
        /* The send is started before there is a receive. */
        fill(data, 2 * LEN, 2);
        OK(MPI_Psend_init(data, 2, LEN, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Pready_range(0, 1, request));
        OK(MPI_Send(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Precv_init(data, 2, LEN, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(is_filled(data, 2 * LEN, 1));
        OK(MPI_Request_free(&request));
        OK(MPI_Recv(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Precv_init(data, 1, 2 * LEN, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(is_filled(data, 2 * LEN, 2));
    }
    OK(MPI_Request_free(&request));
    return finish();
}
