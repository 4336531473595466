/* A message that is longer than all memory is an error at its sender, and has no effect at its receiver.
   ranks 2
   not on peers: they send what is not there */
#include "check.h"
#include <unistd.h>

static int data[1 << 10];

int main(void) {
    MPI_Request request;
    MPI_Status status;
    int flag, x = 1, y = 0;
    start();
    if (rank_of(MPI_COMM_WORLD) == 0) {
        for (int bits = 40; bits < 61; bits++)
            CHECK(MPI_Isend_c(data, (MPI_Count)1 << bits, MPI_INT, 1, 7, MPI_COMM_WORLD, &request) != MPI_SUCCESS);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Send(data, 10, MPI_INT, 1, 7, MPI_COMM_WORLD));
    } else {
        usleep(100000);
        OK(MPI_Irecv(&y, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &request));
        OK(MPI_Send(&x, 1, MPI_INT, 0, 1, MPI_COMM_SELF));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(y == 1);
        OK(MPI_Iprobe(0, 7, MPI_COMM_WORLD, &flag, &status));
        CHECK(!flag);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Recv(data, 100, MPI_INT, 0, 7, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, MPI_INT, &flag));
        CHECK(flag == 10);
    }
    return finish();
}
