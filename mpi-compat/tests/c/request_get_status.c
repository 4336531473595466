/* Request_get_status returns the state of a request, any number of times, and does not change it.
   ranks 2 */
#include "check.h"

int main(void) {
    int value = 0, flag, count;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    start();
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(flag && status.MPI_SOURCE == MPI_ANY_SOURCE);
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Irecv(&value, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, &request));
        OK(MPI_Request_get_status(request, &flag, &status));
        CHECK(!flag);
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        for (flag = 0; !flag;) OK(MPI_Request_get_status(request, &flag, &status));
        for (int i = 0; i < 2; i++) {
            CHECK(status.MPI_SOURCE == 1 && status.MPI_TAG == 5 && value == 9 && request != MPI_REQUEST_NULL);
            OK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
            CHECK(flag);
            OK(MPI_Request_get_status(request, &flag, &status));
        }
        OK(MPI_Wait(&request, &status));
        OK(MPI_Get_count(&status, MPI_INT, &count));
        CHECK(count == 1 && status.MPI_TAG == 5 && request == MPI_REQUEST_NULL);
    } else {
        value = 9;
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Send(&value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD));
    }
    return finish();
}
