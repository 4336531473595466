/* The init calls of persistent collectives are collective.
   ranks 2
   says VERIFY MPI_BCAST_INIT(1): call inconsistent with call to MPI_Barrier_init by 0 */
#include "check.h"

int main(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    int value = 0, code;
    start();
    if (WRONG_AT(0, 1, 0)) code = MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else code = MPI_Bcast_init(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    if (code == MPI_SUCCESS) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Request_free(&request);
    }
    return finish();
}
