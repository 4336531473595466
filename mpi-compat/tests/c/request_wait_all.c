/* Waitall: statuses in the order of the requests, and empty statuses for null ones.
   ranks 2 */
#include "check.h"

int main(void) {
    int out[2] = {5, 6}, in[2] = {0};
    MPI_Request requests[5];
    MPI_Status statuses[5];
    start();
    int other = 1 - rank_of(MPI_COMM_WORLD), count;
    requests[0] = MPI_REQUEST_NULL;
    OK(MPI_Irecv(&in[1], 1, MPI_INT, other, 1, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Irecv(&in[0], 1, MPI_INT, other, 0, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Isend(&out[0], 1, MPI_INT, other, 0, MPI_COMM_WORLD, &requests[3]));
    OK(MPI_Isend(&out[1], 1, MPI_INT, other, 1, MPI_COMM_WORLD, &requests[4]));
    OK(MPI_Waitall(5, requests, statuses));
    CHECK(in[0] == 5 && in[1] == 6);
    CHECK(statuses[0].MPI_SOURCE == MPI_ANY_SOURCE && statuses[0].MPI_TAG == MPI_ANY_TAG);
    OK(MPI_Get_count(&statuses[0], MPI_INT, &count));
    CHECK(count == 0);
    CHECK(statuses[1].MPI_TAG == 1 && statuses[2].MPI_TAG == 0 && statuses[2].MPI_SOURCE == other);
    for (int i = 0; i < 5; i++) CHECK(requests[i] == MPI_REQUEST_NULL);
    OK(MPI_Waitall(5, requests, MPI_STATUSES_IGNORE));
    OK(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
    return finish();
}
