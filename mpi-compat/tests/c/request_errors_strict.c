/* Errors: freed requests, and handles of other kinds.
   not on peers: undefined there */
#include "check.h"

int main(void) {
    int value, flag, index;
    MPI_Request request, kept, requests[2];
    MPI_Info info;
    start();
    OK(MPI_Irecv(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    kept = request;
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_REQUEST, MPI_Wait(&kept, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_REQUEST, MPI_Test(&kept, &flag, MPI_STATUS_IGNORE));
    FAILS(MPI_ERR_REQUEST, MPI_Grequest_complete(kept));
    requests[0] = MPI_REQUEST_NULL;
    requests[1] = kept;
    FAILS(MPI_ERR_REQUEST, MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    FAILS(MPI_ERR_COUNT, MPI_Waitall(-1, requests, MPI_STATUSES_IGNORE));
    FAILS(MPI_ERR_ARG, MPI_Waitany(2, NULL, &index, MPI_STATUS_IGNORE));
    OK(MPI_Info_create(&info));
    request = (MPI_Request)(void *)info;
    FAILS(MPI_ERR_REQUEST, MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Info_free(&info));
    /* A request that is not generalized, and active and inactive persistent requests. */
    OK(MPI_Recv_init(&value, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    FAILS(MPI_ERR_REQUEST, MPI_Grequest_complete(request));
    FAILS(MPI_ERR_REQUEST, MPI_Cancel(&request));
    OK(MPI_Start(&request));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&request));
    OK(MPI_Cancel(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    /* The same request twice. */
    OK(MPI_Irecv(&value, 1, MPI_INT, 0, 9, MPI_COMM_SELF, &requests[0]));
    requests[1] = requests[0];
    OK(MPI_Cancel(&requests[0]));
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    return finish();
}
