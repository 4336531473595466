/* If one of several requests fails, the statuses have the errors.
   ranks 2 */
#include "check.h"

int main(void) {
    int data[3] = {1, 2, 3}, got[3][3];
    MPI_Request requests[3];
    MPI_Status statuses[3];
    start();
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Irecv(got[0], 3, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Irecv(got[1], 2, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Irecv(got[2], 3, MPI_INT, 1, 2, MPI_COMM_WORLD, &requests[2]));
        OK(MPI_Sendrecv(NULL, 0, MPI_INT, 1, 5, NULL, 0, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        FAILS(MPI_ERR_IN_STATUS, MPI_Waitall(3, requests, statuses));
        CHECK(class_of(statuses[1].MPI_ERROR) == MPI_ERR_TRUNCATE);
        /* The other requests may be complete or not. */
        for (int i = 0; i < 3; i += 2) {
            int class = class_of(statuses[i].MPI_ERROR);
            CHECK(class == MPI_SUCCESS || class == MPI_ERR_PENDING);
            CHECK((class == MPI_SUCCESS) == (requests[i] == MPI_REQUEST_NULL));
        }
        CHECK(requests[1] == MPI_REQUEST_NULL);
        OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    } else {
        for (int i = 0; i < 3; i++) OK(MPI_Send(data, 3, MPI_INT, 0, i, MPI_COMM_WORLD));
        OK(MPI_Sendrecv(NULL, 0, MPI_INT, 0, 5, NULL, 0, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    return finish();
}
