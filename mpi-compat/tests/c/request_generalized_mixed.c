/* Generalized requests together with others. */
#include "check.h"

static int calls;

static int query(void *extra, MPI_Status *status) {
    (void)extra;
    MPI_Status_set_elements(status, MPI_BYTE, 7);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = 21;
    return MPI_SUCCESS;
}

static int freed(void *extra) {
    (void)extra;
    calls++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) {
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

int main(void) {
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int out = 6, in = 0;
    start();
    OK(MPI_Grequest_start(query, freed, cancel, NULL, &requests[0]));
    OK(MPI_Irecv(&in, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[1]));
    OK(MPI_Isend(&out, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &requests[2]));
    OK(MPI_Grequest_complete(requests[0]));
    OK(MPI_Waitall(3, requests, statuses));
    CHECK(calls == 1 && in == 6 && statuses[0].MPI_TAG == 21 && statuses[1].MPI_TAG == 0);
    CHECK(requests[0] == MPI_REQUEST_NULL);
    return finish();
}
