/* Neighbourhood collectives, non-blocking and persistent.
   ranks 1 2 4 */
#include "check.h"

int main(void) {
    MPI_Comm ring;
    MPI_Request r[10];
    MPI_Info info = MPI_INFO_NULL;
    int rank, size, periods[1] = {1}, down, up, counts[2] = {1, 1}, displs[2] = {0, 1}, to[10][2], out[2];
    MPI_Aint bytes[2] = {0, 4};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Cart_create(MPI_COMM_WORLD, 1, &size, periods, 0, &ring));
    OK(MPI_Comm_rank(ring, &rank));
    OK(MPI_Cart_shift(ring, 0, 1, &down, &up));
    OK(MPI_Neighbor_allgather_init(out, 1, MPI_INT, to[5], 1, MPI_INT, ring, info, &r[5]));
    OK(MPI_Neighbor_allgatherv_init(out, 1, MPI_INT, to[6], counts, displs, MPI_INT, ring, info, &r[6]));
    OK(MPI_Neighbor_alltoall_init(out, 1, MPI_INT, to[7], 1, MPI_INT, ring, info, &r[7]));
    OK(MPI_Neighbor_alltoallv_init(out, counts, displs, MPI_INT, to[8], counts, displs, MPI_INT, ring, info, &r[8]));
    OK(MPI_Neighbor_alltoallw_init(out, counts, bytes, types, to[9], counts, bytes, types, ring, info, &r[9]));
    for (int round = 0; round < 3; round++) {
        out[0] = 10 * rank + 100 * round, out[1] = out[0] + 1;
        memset(to, -1, sizeof to);
        OK(MPI_Ineighbor_allgather(out, 1, MPI_INT, to[0], 1, MPI_INT, ring, &r[0]));
        OK(MPI_Ineighbor_allgatherv(out, 1, MPI_INT, to[1], counts, displs, MPI_INT, ring, &r[1]));
        OK(MPI_Ineighbor_alltoall(out, 1, MPI_INT, to[2], 1, MPI_INT, ring, &r[2]));
        OK(MPI_Ineighbor_alltoallv(out, counts, displs, MPI_INT, to[3], counts, displs, MPI_INT, ring, &r[3]));
        OK(MPI_Ineighbor_alltoallw(out, counts, bytes, types, to[4], counts, bytes, types, ring, &r[4]));
        OK(MPI_Startall(5, r + 5));
        OK(MPI_Waitall(10, r, MPI_STATUSES_IGNORE));
        for (int i = 0; i < 10; i++) {
            /* The lower neighbour's block for its upper one: its only block, or the one for that neighbour. */
            int own = i % 5 >= 2;
            CHECK(to[i][0] == 10 * down + 100 * round + own && to[i][1] == 10 * up + 100 * round);
        }
    }
    for (int i = 5; i < 10; i++) OK(MPI_Request_free(&r[i]));
    OK(MPI_Comm_free(&ring));
    return finish();
}
