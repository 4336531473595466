/* Messages of one sender that match the same receives are received in order, whatever their lengths.
   ranks 2 */
#include "check.h"

int main(void) {
    enum { N = 40 };
    static int data[N][20000];
    MPI_Request requests[N];
    start();
    int me = rank_of(MPI_COMM_WORLD);
    for (int round = 0; round < 2; round++) {
        if (me == 0) {
            for (int i = 0; i < N; i++) {
                data[i][0] = i;
                OK(MPI_Isend(data[i], i % 3 == 0 ? 20000 : i + 1, MPI_INT, 1, i % 2, MPI_COMM_WORLD, &requests[i]));
            }
            OK(MPI_Waitall(N, requests, MPI_STATUSES_IGNORE));
        } else {
            for (int i = 0; i < N; i++) {
                MPI_Status status;
                int source = i % 4 < 2 ? MPI_ANY_SOURCE : 0, tag = i % 3 ? MPI_ANY_TAG : i % 2, count;
                data[0][0] = -1;
                OK(MPI_Recv(data[0], 20000, MPI_INT, source, tag, MPI_COMM_WORLD, &status));
                OK(MPI_Get_count(&status, MPI_INT, &count));
                CHECK(data[0][0] == i && status.MPI_TAG == i % 2 && status.MPI_SOURCE == 0);
                CHECK(count == (i % 3 == 0 ? 20000 : i + 1));
            }
        }
    }
    return finish();
}
