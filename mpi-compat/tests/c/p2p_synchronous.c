/* A synchronous send completes once its receive has begun, and not before.
   ranks 2 */
#include "check.h"

int main(void) {
    static char data[50000];
    const int lens[] = {0, 4, 50000};
    start();
    int me = rank_of(MPI_COMM_WORLD), flag;
    for (int i = 0; i < COUNT(lens); i++) {
        if (me == 0) {
            MPI_Request request;
            OK(MPI_Issend(data, lens[i], MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request));
            for (int n = 0; n < 100; n++) {
                OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
                CHECK(!flag);
            }
            OK(MPI_Send(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_Recv(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Recv(data, lens[i], MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    }
    return finish();
}
