/* A flood of messages that are received late: all are received, in order.
   ranks 2 */
#include "check.h"

int main(void) {
    start();
    const int N = rounds(100000);
    int me = rank_of(MPI_COMM_WORLD), wrong = 0;
    if (me == 0) {
        for (int i = 0; i < N; i++) OK(MPI_Send(&i, 1, MPI_INT, 1, 3, MPI_COMM_WORLD));
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 4, MPI_COMM_WORLD));
    } else {
        for (int i = 0; i < N; i++) {
            int value;
            OK(MPI_Recv(&value, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            wrong += value != i;
        }
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(wrong == 0);
    }
    return finish();
}
