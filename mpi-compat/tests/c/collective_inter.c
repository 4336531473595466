/* Collectives of intercommunicators: each group receives what the other group sends; MPI_ROOT and MPI_PROC_NULL.
   ranks 2 3 5 */
#include "check.h"

int main(void) {
    MPI_Comm half, inter;
    int rank, size;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int odd = rank % 2, me = rank / 2, n = (size + 1 - odd) / 2, m = size - n;
    OK(MPI_Comm_split(MPI_COMM_WORLD, odd, 0, &half));
    OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - odd, 0, &inter));
    /* A remote rank's number, and the sum of all of them. */
    int far = 1 - odd, total = far ? m * m : m * (m - 1);
    int a[32], b[32], counts[8], displs[8];
    for (int root_side = 0; root_side < 2; root_side++) {
        int roots = root_side ? size / 2 : (size + 1) / 2;
        for (int r = 0; r < roots; r++) {
            int mine = odd == root_side, root = !mine ? r : r == me ? MPI_ROOT : MPI_PROC_NULL;
            int is_root = root == MPI_ROOT, value = is_root ? 100 + r : -1;
            OK(MPI_Bcast(&value, 1, MPI_INT, root, inter));
            CHECK(value == (mine && !is_root ? -1 : 100 + r));
            for (int i = 0; i < 32; i++) a[i] = b[i] = -1;
            OK(MPI_Gather(&rank, 1, MPI_INT, b, 1, MPI_INT, root, inter));
            for (int i = 0; is_root && i < m; i++) CHECK(b[i] == 2 * i + far);
            for (int i = 0; is_root && i < m; i++) a[i] = 10 + i;
            OK(MPI_Scatter(a, 1, MPI_INT, &value, 1, MPI_INT, root, inter));
            if (!mine) CHECK(value == 10 + me);
            for (int i = 0, at = 0; i < m; i++) counts[i] = i % 2 + 1, displs[i] = at, at += counts[i] + 1;
            int own[2] = {rank, -rank};
            OK(MPI_Gatherv(own, me % 2 + 1, MPI_INT, b, counts, displs, MPI_INT, root, inter));
            for (int i = 0; is_root && i < m; i++) CHECK(b[displs[i]] == 2 * i + far);
            OK(MPI_Scatterv(b, counts, displs, MPI_INT, own, me % 2 + 1, MPI_INT, root, inter));
            CHECK(own[0] == rank && own[1] == -rank);
            OK(MPI_Reduce(&rank, &value, 1, MPI_INT, MPI_SUM, root, inter));
            if (is_root) CHECK(value == total);
        }
    }
    OK(MPI_Allgather(&rank, 1, MPI_INT, b, 1, MPI_INT, inter));
    for (int i = 0; i < m; i++) CHECK(b[i] == 2 * i + far);
    for (int i = 0; i < m; i++) counts[i] = i + 1, displs[i] = i * (i + 1) / 2;
    for (int i = 0; i < 8; i++) a[i] = rank;
    OK(MPI_Allgatherv(a, me + 1, MPI_INT, b, counts, displs, MPI_INT, inter));
    for (int i = 0; i < m; i++) CHECK(b[displs[i]] == 2 * i + far && b[displs[i] + i] == 2 * i + far);
    for (int i = 0; i < m; i++) a[i] = 10 * rank + i;
    OK(MPI_Alltoall(a, 1, MPI_INT, b, 1, MPI_INT, inter));
    for (int i = 0; i < m; i++) CHECK(b[i] == 10 * (2 * i + far) + me);
    for (int i = 0; i < m; i++) counts[i] = 1, displs[i] = i;
    OK(MPI_Alltoallv(a, counts, displs, MPI_INT, b, counts, displs, MPI_INT, inter));
    for (int i = 0; i < m; i++) CHECK(b[i] == 10 * (2 * i + far) + me);
    int sum[3] = {rank, 1, -rank}, got[3];
    OK(MPI_Allreduce(sum, got, 3, MPI_INT, MPI_SUM, inter));
    CHECK(got[0] == total && got[1] == m && got[2] == -total);
    /* Both groups give the same number of elements: each rank of a group gets one for each rank of the other. */
    for (int i = 0; i < 32; i++) a[i] = rank + i, b[i] = -1;
    OK(MPI_Reduce_scatter_block(a, b, m, MPI_INT, MPI_SUM, inter));
    for (int i = 0; i < m; i++) CHECK(b[i] == total + m * (me * m + i));
    for (int i = 0; i < n; i++) counts[i] = m;
    OK(MPI_Reduce_scatter(a, b, counts, MPI_INT, MPI_SUM, inter));
    for (int i = 0; i < m; i++) CHECK(b[i] == total + m * (me * m + i));
    OK(MPI_Barrier(inter));
    FAILS(MPI_ERR_COMM, MPI_Scan(a, b, 1, MPI_INT, MPI_SUM, inter));
    FAILS(MPI_ERR_ROOT, MPI_Bcast(a, 1, MPI_INT, m, inter));
    OK(MPI_Comm_free(&inter));
    OK(MPI_Comm_free(&half));
    return finish();
}
