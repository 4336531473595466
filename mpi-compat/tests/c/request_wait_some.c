/* Waitsome and Testsome complete all requests that are over, and return their indices.
   ranks 2 */
#include "check.h"

enum { N = 12 };

int main(void) {
    int values[N], seen[N] = {0}, indices[N], count, total;
    MPI_Request requests[N];
    MPI_Status statuses[N];
    start();
    for (int test = 0; test < 2; test++) {
        if (rank_of(MPI_COMM_WORLD) == 0) {
            memset(seen, 0, sizeof seen);
            for (int i = 0; i < N; i++) OK(MPI_Irecv(&values[i], 1, MPI_INT, 1, i, MPI_COMM_WORLD, &requests[i]));
            for (total = 0; total < N; total += count) {
                if (test) OK(MPI_Testsome(N, requests, &count, indices, statuses));
                else OK(MPI_Waitsome(N, requests, &count, indices, statuses));
                CHECK(count >= !test && count <= N);
                for (int i = 0; i < count; i++) {
                    int at = indices[i];
                    CHECK(!seen[at] && statuses[i].MPI_TAG == at && values[at] == at * at);
                    CHECK(requests[at] == MPI_REQUEST_NULL);
                    seen[at] = 1;
                }
            }
            OK(MPI_Waitsome(N, requests, &count, indices, statuses));
            CHECK(count == MPI_UNDEFINED);
            OK(MPI_Testsome(N, requests, &count, indices, MPI_STATUSES_IGNORE));
            CHECK(count == MPI_UNDEFINED);
        } else {
            for (int i = 0; i < N; i++) {
                int value = i * i;
                OK(MPI_Send(&value, 1, MPI_INT, 0, i, MPI_COMM_WORLD));
            }
        }
    }
    return finish();
}
