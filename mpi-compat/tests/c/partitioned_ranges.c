/* MPI_Pready_range, which includes both its ends, and MPI_Pready_list.
   ranks 2 */
#include "check.h"

int main(void) {
    MPI_Request request;
    int data[10], odd[] = {9, 1, 7}, rank;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    for (int i = 0; i < 10; i++) data[i] = rank == 0 ? i * i : -1;
    if (rank == 0) {
        OK(MPI_Psend_init(data, 10, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Pready_range(2, 6, request));
        OK(MPI_Pready_list(COUNT(odd), odd, request));
        OK(MPI_Pready_range(8, 8, request));
        OK(MPI_Pready(0, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Precv_init(data, 2, 5, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < 10; i++) CHECK(data[i] == i * i);
    }
    OK(MPI_Request_free(&request));
    return finish();
}
