/* A collective call that is refused at one rank fails at all ranks that wait for it, also if they have started it
   before, so all ranks make it again.
   ranks 2 3
   not on peers: there a refused call does not count, so the rank would have to make it again alone */
#include "check.h"

int main(void) {
    int rank, size, a[2] = {0, 1}, sum = -1, length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Request request;
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rank = rank_of(MPI_COMM_WORLD);
    for (int round = 0; round < 3; round++) {
        int code = MPI_Ireduce(a, &sum, rank == 1 ? -1 : 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &request);
        if (rank == 1) CHECK(class_of(code) == MPI_ERR_COUNT);
        /* Other ranks that need nothing of that rank may have completed the call. */
        if (rank != 1 && code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 0) {
            CHECK(code != MPI_SUCCESS);
            MPI_Error_string(code, text, &length);
            CHECK(strstr(text, "count is -1") && strstr(text, "rank 1"));
        }
        a[0] = rank;
        OK(MPI_Ireduce(a, rank ? NULL : &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Ireduce(rank ? a : MPI_IN_PLACE, a, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(rank > 0 || (sum == size * (size - 1) / 2 && a[0] == sum));
    }
    return finish();
}
