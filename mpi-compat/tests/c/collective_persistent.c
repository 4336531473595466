/* Persistent collectives: made once, started several times in any order, with other data each time.
   ranks 1 2 3 4 */
#include "check.h"

enum { KINDS = 17, N = 2 };

static int from[KINDS][64], to[KINDS][64];

int main(void) {
    int rank, size, counts[8], displs[8], bytes[8];
    MPI_Datatype types[8];
    MPI_Request r[KINDS];
    MPI_Info info = MPI_INFO_NULL;
    start();
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int root = size - 1;
    for (int i = 0; i < size; i++) counts[i] = N, displs[i] = N * i, bytes[i] = 4 * N * i, types[i] = MPI_INT;
    OK(MPI_Barrier_init(comm, info, &r[0]));
    OK(MPI_Bcast_init(from[1], N, MPI_INT, root, comm, info, &r[1]));
    OK(MPI_Gather_init(from[2], N, MPI_INT, to[2], N, MPI_INT, root, comm, info, &r[2]));
    OK(MPI_Gatherv_init(from[3], N, MPI_INT, to[3], counts, displs, MPI_INT, root, comm, info, &r[3]));
    OK(MPI_Scatter_init(from[4], N, MPI_INT, to[4], N, MPI_INT, root, comm, info, &r[4]));
    OK(MPI_Scatterv_init(from[5], counts, displs, MPI_INT, to[5], N, MPI_INT, root, comm, info, &r[5]));
    OK(MPI_Allgather_init(from[6], N, MPI_INT, to[6], N, MPI_INT, comm, info, &r[6]));
    OK(MPI_Allgatherv_init(from[7], N, MPI_INT, to[7], counts, displs, MPI_INT, comm, info, &r[7]));
    OK(MPI_Alltoall_init(MPI_IN_PLACE, 0, MPI_INT, to[8], N, MPI_INT, comm, info, &r[8]));
    OK(MPI_Alltoallv_init(from[9], counts, displs, MPI_INT, to[9], counts, displs, MPI_INT, comm, info, &r[9]));
    OK(MPI_Alltoallw_init(from[10], counts, bytes, types, to[10], counts, bytes, types, comm, info, &r[10]));
    OK(MPI_Reduce_init(from[11], to[11], N, MPI_INT, MPI_SUM, root, comm, info, &r[11]));
    OK(MPI_Allreduce_init(MPI_IN_PLACE, to[12], N, MPI_INT, MPI_SUM, comm, info, &r[12]));
    OK(MPI_Reduce_scatter_init(from[13], to[13], counts, MPI_INT, MPI_SUM, comm, info, &r[13]));
    OK(MPI_Reduce_scatter_block_init(from[14], to[14], N, MPI_INT, MPI_SUM, comm, info, &r[14]));
    OK(MPI_Scan_init(from[15], to[15], N, MPI_INT, MPI_SUM, comm, info, &r[15]));
    OK(MPI_Exscan_init(from[16], to[16], N, MPI_INT, MPI_SUM, comm, info, &r[16]));
    OK(MPI_Wait(&r[0], MPI_STATUS_IGNORE));
    for (int round = 0; round < 6; round++) {
        for (int k = 0; k < KINDS; k++)
            for (int i = 0; i < 64; i++) from[k][i] = 1000 * rank + 10 * i + round, to[k][i] = -1;
        memcpy(to[8], from[8], sizeof to[8]);
        memcpy(to[12], from[12], sizeof to[12]);
        if (round % 2 == 0) {
            OK(MPI_Startall(KINDS, r));
            OK(MPI_Waitall(KINDS, r, MPI_STATUSES_IGNORE));
        } else {
            /* The ranks start them in different orders. */
            for (int k = 0; k < KINDS; k++) OK(MPI_Start(&r[(k + rank * 5) % KINDS]));
            for (int k = 0; k < KINDS; k++) OK(MPI_Wait(&r[(k * 3 + round) % KINDS], MPI_STATUS_IGNORE));
        }
        int ranks = size * (size - 1) / 2, below = rank * (rank - 1) / 2, wrong = 0;
        for (int i = 0; i < N; i++) {
            int own = 10 * i + round, part = 10 * (N * rank + i) + round;
            wrong += from[1][i] != 1000 * root + own;
            wrong += to[4][i] != 1000 * root + part || to[5][i] != to[4][i];
            wrong += to[11][i] != (rank == root ? 1000 * ranks + size * own : -1);
            wrong += to[12][i] != 1000 * ranks + size * own;
            wrong += to[13][i] != 1000 * ranks + size * part || to[14][i] != to[13][i];
            wrong += to[15][i] != 1000 * (below + rank) + (rank + 1) * own;
            wrong += to[16][i] != (rank ? 1000 * below + rank * own : -1);
            for (int p = 0; p < size; p++) {
                int at = N * p + i;
                wrong += to[2][at] != (rank == root ? 1000 * p + own : -1) || to[3][at] != to[2][at];
                wrong += to[6][at] != 1000 * p + own || to[7][at] != to[6][at];
                wrong += to[8][at] != 1000 * p + part || to[9][at] != to[8][at] || to[10][at] != to[8][at];
            }
        }
        CHECK(wrong == 0);
    }
    for (int k = 0; k < KINDS; k++) {
        CHECK(r[k] != MPI_REQUEST_NULL);
        OK(MPI_Request_free(&r[k]));
    }
    return finish();
}
