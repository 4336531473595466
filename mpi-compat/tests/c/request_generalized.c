/* Generalized requests: the user-defined functions are called at the times that the standard defines. */
#include "check.h"

struct work {
    int queried, freed, cancelled, complete;
};

static int query(void *extra, MPI_Status *status) {
    ((struct work *)extra)->queried++;
    MPI_Status_set_elements(status, MPI_INT, 5);
    MPI_Status_set_cancelled(status, ((struct work *)extra)->cancelled);
    status->MPI_SOURCE = 3;
    status->MPI_TAG = 4;
    return MPI_SUCCESS;
}

static int freed(void *extra) {
    ((struct work *)extra)->freed++;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) {
    ((struct work *)extra)->cancelled++;
    ((struct work *)extra)->complete = complete;
    return MPI_SUCCESS;
}

int main(void) {
    struct work work = {0, 0, 0, -1};
    MPI_Request request, other;
    MPI_Status status;
    int flag, count;
    start();
    OK(MPI_Grequest_start(query, freed, cancel, &work, &request));
    OK(MPI_Test(&request, &flag, &status));
    CHECK(!flag && work.queried == 0);
    OK(MPI_Cancel(&request));
    CHECK(work.cancelled == 1 && work.complete == 0);
    OK(MPI_Grequest_complete(request));
    OK(MPI_Request_get_status(request, &flag, &status));
    CHECK(flag && work.freed == 0);
    OK(MPI_Wait(&request, &status));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == 5 && status.MPI_SOURCE == 3 && status.MPI_TAG == 4);
    OK(MPI_Test_cancelled(&status, &flag));
    CHECK(flag && work.freed == 1 && request == MPI_REQUEST_NULL);

    /* Freed after it is complete. */
    memset(&work, 0, sizeof work);
    OK(MPI_Grequest_start(query, freed, cancel, &work, &request));
    OK(MPI_Grequest_complete(request));
    OK(MPI_Request_free(&request));
    CHECK(work.freed == 1 && work.queried == 0);
    /* Freed before: the program completes it by the handle that it kept. */
    memset(&work, 0, sizeof work);
    OK(MPI_Grequest_start(query, freed, cancel, &work, &request));
    other = request;
    OK(MPI_Request_free(&request));
    CHECK(work.freed == 0);
    OK(MPI_Grequest_complete(other));
    CHECK(work.freed == 1);
    return finish();
}
