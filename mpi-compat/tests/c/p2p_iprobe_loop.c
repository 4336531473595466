/* A program that only probes until its message has arrived receives it.
   ranks 2 4 */
#include "check.h"

int main(void) {
    int size, value = 0, flag = 0;
    MPI_Status status;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 50; round++) {
        if (me == 0) {
            for (int i = 1; i < size; i++) {
                for (flag = 0; !flag;) OK(MPI_Iprobe(MPI_ANY_SOURCE, round, MPI_COMM_WORLD, &flag, &status));
                OK(MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                CHECK(value == 100 * round + status.MPI_SOURCE);
            }
            for (int i = 1; i < size; i++) OK(MPI_Send(&round, 1, MPI_INT, i, 0, MPI_COMM_WORLD));
        } else {
            value = 100 * round + me;
            OK(MPI_Send(&value, 1, MPI_INT, 0, round, MPI_COMM_WORLD));
            OK(MPI_Recv(&value, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        }
    }
    return finish();
}
