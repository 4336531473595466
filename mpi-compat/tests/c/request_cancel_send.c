/* A send that is cancelled before it is received completes in either case; a send that has been received is not
   cancelled.
   ranks 2
   not on peers: MPICH waits forever */
#include "check.h"

int main(void) {
    static char data[100000], got[100000];
    const int lens[] = {0, 100, 100000};
    MPI_Request request;
    MPI_Status status;
    start();
    int me = rank_of(MPI_COMM_WORLD), cancelled;
    fill(data, sizeof data, 1);
    for (int i = 0; i < COUNT(lens); i++) {
        if (me == 0) {
            OK(MPI_Issend(data, lens[i], MPI_CHAR, 1, 1, MPI_COMM_WORLD, &request));
            OK(MPI_Cancel(&request));
            OK(MPI_Wait(&request, &status));
            OK(MPI_Test_cancelled(&status, &cancelled));
            CHECK(request == MPI_REQUEST_NULL);
            OK(MPI_Send(&cancelled, 1, MPI_INT, 1, 2, MPI_COMM_WORLD));
        } else {
            OK(MPI_Recv(&cancelled, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            if (!cancelled) {
                OK(MPI_Recv(got, sizeof got, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(is_filled(got, lens[i], 1));
            }
            int flag;
            OK(MPI_Iprobe(0, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
            CHECK(!flag);
            OK(MPI_Send(NULL, 0, MPI_INT, 0, 3, MPI_COMM_WORLD));
        }
        if (me == 0) OK(MPI_Recv(NULL, 0, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    return finish();
}
