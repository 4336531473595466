/* The request of a collective that is over may be freed; the effects of the call are complete.
   ranks 1 2 3 */
#include "check.h"

#define GAPS 4

int main(void) {
    int in[2 * GAPS], out[2 * GAPS], size;
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Datatype gapped;
    MPI_Request request;
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
    for (int over = 0; !over;) OK(MPI_Request_get_status(request, &over, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    /* The result has gaps, so it is copied to its place when the request is completed. */
    OK(MPI_Type_vector(2, 1, GAPS, MPI_INT, &gapped));
    OK(MPI_Type_commit(&gapped));
    for (int i = 0; i < 2 * GAPS; i++) in[i] = rank_of(MPI_COMM_WORLD) + i, out[i] = -1;
    OK(MPI_Iallgather(in, 0, MPI_INT, out, 0, MPI_INT, MPI_COMM_WORLD, &request));
    for (int over = 0; !over;) OK(MPI_Request_get_status(request, &over, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    OK(MPI_Ibcast(rank_of(MPI_COMM_WORLD) ? out : in, 1, gapped, 0, MPI_COMM_WORLD, &request));
    for (int over = 0; !over;) OK(MPI_Request_get_status(request, &over, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    CHECK(rank_of(MPI_COMM_WORLD) == 0 || (out[0] == 0 && out[1] == -1 && out[GAPS] == GAPS));
    OK(MPI_Comm_idup(MPI_COMM_WORLD, &copy, &request));
    for (int over = 0; !over;) OK(MPI_Request_get_status(request, &over, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    OK(MPI_Barrier(copy));
    OK(MPI_Comm_free(&copy));
    OK(MPI_Type_free(&gapped));
    /* A persistent request that has been started and is complete, but was not waited for. */
    OK(MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    for (int over = 0; !over;) OK(MPI_Request_get_status(request, &over, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    return finish();
}
