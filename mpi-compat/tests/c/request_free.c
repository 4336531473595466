/* Requests that are freed at once: their messages arrive nevertheless, also when MPI ends.
   ranks 2 */
#include "check.h"

int main(void) {
    static char small[10], large[300000], got[300000];
    MPI_Request request;
    start();
    fill(small, sizeof small, 1);
    fill(large, sizeof large, 2);
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Isend(small, sizeof small, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request));
        OK(MPI_Request_free(&request));
        CHECK(request == MPI_REQUEST_NULL);
        OK(MPI_Isend(large, sizeof large, MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request));
        OK(MPI_Request_free(&request));
        OK(MPI_Issend(small, sizeof small, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &request));
        OK(MPI_Request_free(&request));
    } else {
        OK(MPI_Recv(got, sizeof got, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(is_filled(got, sizeof small, 1));
        OK(MPI_Recv(got, sizeof got, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(is_filled(got, sizeof large, 2));
        OK(MPI_Recv(got, sizeof got, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(is_filled(got, sizeof small, 1));
    }
    return finish();
}
