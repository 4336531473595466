/* Messages of every length arrive whole, and statuses have source, tag and length.
   ranks 2 */
#include "check.h"

int main(void) {
    static unsigned char data[1 << 20], got[1 << 20];
    const int lens[] = {0, 1, 8, 16, 17, 100, 4000, 5000, 70000, 1 << 20};
    start();
    int me = rank_of(MPI_COMM_WORLD), other = 1 - me;
    for (int i = 0; i < COUNT(lens); i++) {
        MPI_Status status;
        int count;
        for (int turn = 0; turn < 2; turn++) {
            if (turn == me) {
                fill(data, lens[i], i + me);
                OK(MPI_Send(data, lens[i], MPI_BYTE, other, 100 + i, MPI_COMM_WORLD));
            } else {
                memset(got, 0, sizeof got);
                OK(MPI_Recv(got, sizeof got, MPI_BYTE, other, 100 + i, MPI_COMM_WORLD, &status));
                CHECK(status.MPI_SOURCE == other && status.MPI_TAG == 100 + i);
                OK(MPI_Get_count(&status, MPI_BYTE, &count));
                CHECK(count == lens[i]);
                CHECK(is_filled(got, lens[i], i + other));
            }
        }
    }
    OK(MPI_Send(NULL, 0, MPI_INT, other, 0, MPI_COMM_WORLD));
    OK(MPI_Recv(NULL, 0, MPI_INT, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    return finish();
}
