/* Request_get_status_any, _all and _some query several requests and free none.
   ranks 2 */
#include "check.h"

int main(void) {
    int values[3] = {0}, flag, index, count, indices[4];
    MPI_Request requests[4];
    MPI_Status statuses[4], status;
    start();
    if (rank_of(MPI_COMM_WORLD) == 0) {
        for (int i = 0; i < 3; i++) OK(MPI_Irecv(&values[i], 1, MPI_INT, 1, i, MPI_COMM_WORLD, &requests[i]));
        requests[3] = MPI_REQUEST_NULL;
        OK(MPI_Request_get_status_all(4, requests, &flag, statuses));
        CHECK(!flag);
        OK(MPI_Request_get_status_any(3, requests, &index, &flag, &status));
        CHECK(!flag && index == MPI_UNDEFINED);
        OK(MPI_Request_get_status_some(3, requests, &count, indices, statuses));
        CHECK(count == 0);
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        for (flag = 0; !flag;) OK(MPI_Request_get_status_any(4, requests, &index, &flag, &status));
        CHECK(index == 1 && status.MPI_TAG == 1 && requests[1] != MPI_REQUEST_NULL);
        OK(MPI_Request_get_status_some(4, requests, &count, indices, statuses));
        CHECK(count == 1 && indices[0] == 1 && statuses[0].MPI_TAG == 1);
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        for (flag = 0; !flag;) OK(MPI_Request_get_status_all(4, requests, &flag, statuses));
        for (int i = 0; i < 3; i++) CHECK(statuses[i].MPI_TAG == i && values[i] == i && requests[i] != MPI_REQUEST_NULL);
        CHECK(statuses[3].MPI_TAG == MPI_ANY_TAG);
        OK(MPI_Waitall(4, requests, statuses));
        for (int i = 0; i < 3; i++) CHECK(statuses[i].MPI_TAG == i);
        OK(MPI_Request_get_status_some(4, requests, &count, indices, statuses));
        CHECK(count == MPI_UNDEFINED);
        status.MPI_ERROR = MPI_ERR_OTHER; /* an empty status has no error */
        OK(MPI_Request_get_status_any(4, requests, &index, &flag, &status));
        CHECK(flag && index == MPI_UNDEFINED && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_ERROR == MPI_SUCCESS);
        OK(MPI_Request_get_status_all(4, requests, &flag, MPI_STATUSES_IGNORE));
        CHECK(flag);
    } else {
        const int order[] = {1, 0, 2};
        for (int i = 0; i < 3; i++) {
            if (i < 2) OK(MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Send(&order[i], 1, MPI_INT, 0, order[i], MPI_COMM_WORLD));
        }
    }
    return finish();
}
