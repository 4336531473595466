/* Functions that complete one request do not set MPI_ERROR of the status. */
#include "check.h"

int main(void) {
    int value = 1, got;
    MPI_Request request;
    MPI_Status status;
    start();
    status.MPI_ERROR = 77;
    OK(MPI_Isend(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    OK(MPI_Recv(&got, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &status));
    CHECK(status.MPI_ERROR == 77);
    OK(MPI_Wait(&request, &status));
    CHECK(status.MPI_ERROR == 77);
    return finish();
}
