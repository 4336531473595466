/* The status of a partitioned receive has the sender, the tag and all elements; that of an inactive request is empty.
   ranks 2 */
#include "check.h"

int main(void) {
    MPI_Request request;
    MPI_Status status;
    double data[6] = {0};
    int rank, count, flag;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    if (rank == 0) {
        OK(MPI_Psend_init(data, 3, 2, MPI_DOUBLE, 1, 77, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Pready_range(0, 2, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Precv_init(data, 2, 3, MPI_DOUBLE, 0, 77, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Test(&request, &flag, &status));
        CHECK(flag == 1 && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, &status));
        OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
        CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 77 && count == 6);
    }
    OK(MPI_Request_free(&request));
    return finish();
}
