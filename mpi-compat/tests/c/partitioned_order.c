/* Several messages with the same tag: matched in the order of the calls that made the requests, not in that of their starts.
   ranks 2 */
#include "check.h"

int main(void) {
    MPI_Request requests[3];
    int data[3][2], rank;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 2; j++) data[i][j] = rank == 0 ? 10 * i + j : -1;
        if (rank == 0)
            OK(MPI_Psend_init(data[i], 2, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]));
        else
            OK(MPI_Precv_init(data[i], 2, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]));
    }
    if (rank == 0) {
        for (int i = 2; i >= 0; i--) {
            OK(MPI_Start(&requests[i]));
            OK(MPI_Pready_range(0, 1, requests[i]));
        }
    } else {
        for (int i = 0; i < 3; i++) OK(MPI_Start(&requests[i]));
    }
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 2; j++) CHECK(data[i][j] == 10 * i + j);
        OK(MPI_Request_free(&requests[i]));
    }
    return finish();
}
