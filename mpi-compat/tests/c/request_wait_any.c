/* Waitany completes one of several requests, returns its index, and completes all in turn.
   ranks 2 */
#include "check.h"

enum { N = 10 };

int main(void) {
    int values[N], seen[N] = {0}, index;
    MPI_Request requests[N];
    MPI_Status status;
    start();
    if (rank_of(MPI_COMM_WORLD) == 0) {
        for (int i = 0; i < N; i++) OK(MPI_Irecv(&values[i], 1, MPI_INT, 1, i, MPI_COMM_WORLD, &requests[i]));
        for (int i = 0; i < N; i++) {
            OK(MPI_Waitany(N, requests, &index, &status));
            CHECK(index >= 0 && index < N && !seen[index] && requests[index] == MPI_REQUEST_NULL);
            CHECK(status.MPI_TAG == index && values[index] == 10 * index);
            seen[index] = 1;
        }
        OK(MPI_Waitany(N, requests, &index, &status));
        CHECK(index == MPI_UNDEFINED && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
        OK(MPI_Waitany(0, NULL, &index, MPI_STATUS_IGNORE));
        CHECK(index == MPI_UNDEFINED);
    } else {
        for (int i = N - 1; i >= 0; i--) {
            int value = 10 * i;
            OK(MPI_Send(&value, 1, MPI_INT, 0, i, MPI_COMM_WORLD));
        }
    }
    return finish();
}
