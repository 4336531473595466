/* A message is received by the first posted of the receives that match it.
   ranks 2 */
#include "check.h"

int main(void) {
    int values[4] = {-1, -1, -1, -1};
    MPI_Request requests[4];
    MPI_Status statuses[4];
    start();
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Irecv(&values[0], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Irecv(&values[1], 1, MPI_INT, 1, 7, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Irecv(&values[2], 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &requests[2]));
        OK(MPI_Irecv(&values[3], 1, MPI_INT, 1, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[3]));
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        OK(MPI_Waitall(4, requests, statuses));
        for (int i = 0; i < 4; i++) CHECK(values[i] == i && statuses[i].MPI_SOURCE == 1 && statuses[i].MPI_TAG == 7);
    } else {
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < 4; i++) OK(MPI_Send(&i, 1, MPI_INT, 0, 7, MPI_COMM_WORLD));
    }
    return finish();
}
