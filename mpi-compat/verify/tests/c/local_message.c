/* The ranks of messages must be in range, and counts must not be negative.
   ranks 2
   says VERIFY MPI_SEND(0): dest 2 is not a rank from 0 to 1
   says VERIFY MPI_IRECV(0): count=-1 < 0 */
#include "check.h"

int main(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    int value = 0, other;
    start();
    if (rank == 0) {
        MPI_Send(&value, 1, MPI_INT, IS_WRONG ? 2 : 1, 0, MPI_COMM_WORLD);
        MPI_Irecv(&value, IS_WRONG ? -1 : 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        handled -= IS_WRONG;
    } else {
        if (!IS_WRONG) MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        handled = IS_WRONG;
    }
    return finish();
}
