/* A rank that waits for any of several requests also reports the missing rank, and so does one that waits for some.
   ranks 3
   level 1
   env FARSIDE_STALL_S=0.2
   says VERIFY MPI_IBARRIER(0): waits for the call of 2
   says VERIFY MPI_IBARRIER(1): waits for the call of 2 */
#include "check.h"
#include <unistd.h>

int main(void) {
    MPI_Request request;
    int at = -1, n = 0;
    start();
    if (WRONG_AT(2, 1, 0)) sleep(1);
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    if (rank == 0) MPI_Waitany(1, &request, &at, MPI_STATUS_IGNORE);
    else MPI_Waitsome(1, &request, &n, &at, MPI_STATUSES_IGNORE);
    if (at != 0 || request != MPI_REQUEST_NULL) printf("FAILED rank %d: completes %d\n", rank, at);
    handled = IS_WRONG;
    return finish();
}
