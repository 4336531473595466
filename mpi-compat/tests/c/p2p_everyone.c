/* Every rank exchanges messages with every other at the same time, also with more ranks than cores.
   ranks 1 3 4 */
#include "check.h"

enum { N = 3000 };

int main(void) {
    static int out[4][N], in[4][N];
    MPI_Request requests[8];
    int size;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < size; i++) {
            int n = round % 2 ? N : 2;
            fill(out[i], n * sizeof(int), me * 7 + i + round);
            OK(MPI_Irecv(in[i], N, MPI_INT, i, round, MPI_COMM_WORLD, &requests[2 * i]));
            OK(MPI_Isend(out[i], n, MPI_INT, i, round, MPI_COMM_WORLD, &requests[2 * i + 1]));
        }
        OK(MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < size; i++) CHECK(is_filled(in[i], (round % 2 ? N : 2) * sizeof(int), i * 7 + me + round));
    }
    return finish();
}
