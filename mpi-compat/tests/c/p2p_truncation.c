/* A message longer than its receive is an error at the receiver only; later messages are received normally.
   ranks 2 */
#include "check.h"

int main(void) {
    static char data[100000], got[100000];
    const int lens[] = {12, 3000, 100000};
    start();
    int me = rank_of(MPI_COMM_WORLD);
    fill(data, sizeof data, 5);
    for (int i = 0; i < COUNT(lens); i++) {
        for (int posted = 0; posted < 2; posted++) {
            if (me == 0) {
                OK(MPI_Recv(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                OK(MPI_Send(data, lens[i], MPI_CHAR, 1, 0, MPI_COMM_WORLD));
                OK(MPI_Send(data, 10, MPI_CHAR, 1, 0, MPI_COMM_WORLD));
            } else {
                MPI_Request request;
                memset(got, 0, sizeof got);
                if (posted) OK(MPI_Irecv(got, 10, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &request));
                OK(MPI_Send(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD));
                if (posted) FAILS(MPI_ERR_TRUNCATE, MPI_Wait(&request, MPI_STATUS_IGNORE));
                else FAILS(MPI_ERR_TRUNCATE, MPI_Recv(got, 10, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(got[10] == 0);
                OK(MPI_Recv(got, 10, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(is_filled(got, 10, 5));
            }
        }
    }
    return finish();
}
