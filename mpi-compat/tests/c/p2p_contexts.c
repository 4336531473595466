/* Messages of one communicator are not received on another. */
#include "check.h"

int main(void) {
    int one = 1, two = 2, got = 0, flag;
    MPI_Request requests[2];
    start();
    OK(MPI_Isend(&one, 1, MPI_INT, rank_of(MPI_COMM_WORLD), 0, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(&two, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[1]));
    OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(got == 2);
    OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    CHECK(!flag);
    OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(got == 1);
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    return finish();
}
