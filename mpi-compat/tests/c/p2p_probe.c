/* A probe returns the status of the next receive, and does not receive the message.
   ranks 2 */
#include "check.h"

int main(void) {
    static char data[100000], got[100000];
    const int lens[] = {0, 20, 100000};
    start();
    int me = rank_of(MPI_COMM_WORLD), flag, count;
    fill(data, sizeof data, 1);
    for (int i = 0; i < COUNT(lens); i++) {
        MPI_Status status;
        if (me == 0) {
            OK(MPI_Send(data, lens[i], MPI_CHAR, 1, i, MPI_COMM_WORLD));
        } else {
            OK(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
            CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == i);
            OK(MPI_Get_count(&status, MPI_CHAR, &count));
            CHECK(count == lens[i]);
            OK(MPI_Iprobe(0, i, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
            CHECK(flag);
            OK(MPI_Iprobe(0, 77, MPI_COMM_WORLD, &flag, &status));
            CHECK(!flag);
            OK(MPI_Recv(got, count, MPI_CHAR, status.MPI_SOURCE, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            CHECK(is_filled(got, count, 1));
            OK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status));
            CHECK(!flag);
            OK(MPI_Send(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD));
        }
        if (me == 0) OK(MPI_Recv(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    return finish();
}
