/* MPI_Parrived: a partition that is ready arrives while others are not ready, and the others do not.
   ranks 2
   not on peers: in MPICH no partition comes before all are ready */
#include "check.h"

int main(void) {
    MPI_Request request;
    int data[3] = {-1, -1, -1}, rank, flag;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < 3; i++) data[i] = 40 + i;
        OK(MPI_Psend_init(data, 3, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Pready(1, request));
        OK(MPI_Recv(NULL, 0, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        CHECK(flag == 0);
        OK(MPI_Pready(2, request));
        OK(MPI_Pready(0, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
        OK(MPI_Precv_init(data, 3, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        flag = 0;
        while (!flag) OK(MPI_Parrived(request, 1, &flag));
        CHECK(data[1] == 41);
        OK(MPI_Parrived(request, 0, &flag));
        CHECK(flag == 0 && data[0] == -1);
        OK(MPI_Parrived(request, 2, &flag));
        CHECK(flag == 0 && data[2] == -1);
        OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
        CHECK(flag == 0);
        OK(MPI_Send(NULL, 0, MPI_INT, 0, 9, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(data[0] == 40 && data[2] == 42);
        /* Inactive: all partitions count as arrived. */
        OK(MPI_Parrived(request, 0, &flag));
        CHECK(flag == 1);
    }
    OK(MPI_Request_free(&request));
    return finish();
}
