/* Non-blocking collectives: all of them in progress at once on two communicators, completed in another order.
   ranks 1 2 3 4 */
#include "check.h"

enum { KINDS = 17, N = 3 };

int main(void) {
    MPI_Comm comms[2];
    int rank, size, counts[8], displs[8], bytes[8];
    MPI_Datatype types[8];
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    comms[0] = MPI_COMM_WORLD;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]));
    for (int i = 0; i < size; i++) counts[i] = N, displs[i] = N * i, bytes[i] = 4 * N * i, types[i] = MPI_INT;
    for (int round = 0; round < 10; round++) {
        MPI_Request requests[2 * KINDS];
        static int from[2][KINDS][64], to[2][KINDS][64];
        int n = 0, root = round % size;
        for (int c = 0; c < 2; c++) {
            for (int k = 0; k < KINDS; k++)
                for (int i = 0; i < 64; i++) from[c][k][i] = 1000 * rank + 10 * i + round, to[c][k][i] = -1;
            int(*f)[64] = from[c], (*t)[64] = to[c];
            MPI_Comm comm = comms[c];
            MPI_Request *r = requests + c * KINDS;
            OK(MPI_Ibarrier(comm, &r[0]));
            OK(MPI_Ibcast(f[1], N, MPI_INT, root, comm, &r[1]));
            OK(MPI_Igather(f[2], N, MPI_INT, t[2], N, MPI_INT, root, comm, &r[2]));
            OK(MPI_Igatherv(f[3], N, MPI_INT, t[3], counts, displs, MPI_INT, root, comm, &r[3]));
            OK(MPI_Iscatter(f[4], N, MPI_INT, t[4], N, MPI_INT, root, comm, &r[4]));
            OK(MPI_Iscatterv(f[5], counts, displs, MPI_INT, t[5], N, MPI_INT, root, comm, &r[5]));
            OK(MPI_Iallgather(f[6], N, MPI_INT, t[6], N, MPI_INT, comm, &r[6]));
            OK(MPI_Iallgatherv(f[7], N, MPI_INT, t[7], counts, displs, MPI_INT, comm, &r[7]));
            OK(MPI_Ialltoall(f[8], N, MPI_INT, t[8], N, MPI_INT, comm, &r[8]));
            OK(MPI_Ialltoallv(f[9], counts, displs, MPI_INT, t[9], counts, displs, MPI_INT, comm, &r[9]));
            OK(MPI_Ialltoallw(f[10], counts, bytes, types, t[10], counts, bytes, types, comm, &r[10]));
            OK(MPI_Ireduce(f[11], t[11], N, MPI_INT, MPI_SUM, root, comm, &r[11]));
            OK(MPI_Iallreduce(f[12], t[12], N, MPI_INT, MPI_MAX, comm, &r[12]));
            OK(MPI_Ireduce_scatter(f[13], t[13], counts, MPI_INT, MPI_SUM, comm, &r[13]));
            OK(MPI_Ireduce_scatter_block(f[14], t[14], N, MPI_INT, MPI_SUM, comm, &r[14]));
            OK(MPI_Iscan(f[15], t[15], N, MPI_INT, MPI_SUM, comm, &r[15]));
            OK(MPI_Iexscan(f[16], t[16], N, MPI_INT, MPI_SUM, comm, &r[16]));
        }
        n = 2 * KINDS;
        if (round % 3 == 0) {
            OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
        } else if (round % 3 == 1) {
            for (int i = n - 1; i >= 0; i--) OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        } else {
            for (int done = 0; !done;) OK(MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE));
        }
        for (int i = 0; i < n; i++) CHECK(requests[i] == MPI_REQUEST_NULL);
        int ranks = size * (size - 1) / 2, below = rank * (rank - 1) / 2;
        for (int c = 0; c < 2; c++) {
            int(*f)[64] = from[c], (*t)[64] = to[c], wrong = 0;
            for (int i = 0; i < N; i++) {
                int own = 10 * i + round, part = 10 * (N * rank + i) + round;
                wrong += f[1][i] != 1000 * root + own;
                wrong += t[4][i] != 1000 * root + part || t[5][i] != t[4][i];
                wrong += t[11][i] != (rank == root ? 1000 * ranks + size * own : -1);
                wrong += t[12][i] != 1000 * (size - 1) + own;
                wrong += t[13][i] != 1000 * ranks + size * part || t[14][i] != t[13][i];
                wrong += t[15][i] != 1000 * (below + rank) + (rank + 1) * own;
                wrong += t[16][i] != (rank ? 1000 * below + rank * own : -1);
                for (int p = 0; p < size; p++) {
                    int at = N * p + i;
                    wrong += t[2][at] != (rank == root ? 1000 * p + own : -1) || t[3][at] != t[2][at];
                    wrong += t[6][at] != 1000 * p + own || t[7][at] != t[6][at];
                    wrong += t[8][at] != 1000 * p + part || t[9][at] != t[8][at] || t[10][at] != t[8][at];
                }
            }
            CHECK(wrong == 0);
        }
    }
    OK(MPI_Comm_free(&comms[1]));
    return finish();
}
