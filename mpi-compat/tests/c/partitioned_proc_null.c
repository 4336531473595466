/* Partitioned messages with MPI_PROC_NULL end as soon as all partitions are ready.
   not on peers: MPICH crashes */
#include "check.h"

int main(void) {
    MPI_Request requests[2];
    MPI_Status status;
    int data[4] = {1, 2, 3, 4}, count;
    start();
    OK(MPI_Psend_init(data, 4, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(data, 4, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
    OK(MPI_Startall(2, requests));
    OK(MPI_Pready_range(0, 3, requests[0]));
    OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    OK(MPI_Wait(&requests[1], &status));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && count == 0);
    for (int i = 0; i < 4; i++) CHECK(data[i] == i + 1);
    for (int i = 0; i < 2; i++) OK(MPI_Request_free(&requests[i]));
    return finish();
}
