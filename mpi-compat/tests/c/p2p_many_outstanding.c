/* A hundred thousand sends and receives outstanding, completed in any order.
   ranks 2 */
#include "check.h"

enum { MOST = 100000 };

int main(void) {
    static int out[MOST], in[MOST];
    static MPI_Request requests[2 * MOST];
    start();
    const int N = rounds(MOST);
    int other = 1 - rank_of(MPI_COMM_WORLD);
    for (int late = 0; late < 2; late++) {
        memset(in, 0, sizeof in);
        for (int i = 0; i < N; i++) {
            out[i] = i * 3 + 1;
            OK(MPI_Isend(&out[i], 1, MPI_INT, other, i % 100, MPI_COMM_WORLD, &requests[N + i]));
        }
        for (int i = 0; i < N; i++) OK(MPI_Irecv(&in[i], 1, MPI_INT, other, i % 100, MPI_COMM_WORLD, &requests[i]));
        OK(MPI_Waitall(2 * N, requests, MPI_STATUSES_IGNORE));
        int wrong = 0;
        for (int i = 0; i < N; i++) wrong += in[i] != out[i];
        CHECK(wrong == 0);
    }
    return finish();
}
