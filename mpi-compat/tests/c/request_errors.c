/* Errors: null requests where one is required, and inactive or active ones in the wrong state. */
#include "check.h"

int main(void) {
    int value;
    MPI_Request request = MPI_REQUEST_NULL;
    start();
    FAILS(MPI_ERR_REQUEST, MPI_Request_free(&request));
    FAILS(MPI_ERR_REQUEST, MPI_Cancel(&request));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&request));
    OK(MPI_Irecv(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&request));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    return finish();
}
