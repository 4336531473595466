/* A permutation of a distributed array by one get from each rank, with datatypes of the elements (example of section 12.3.2).
   ranks 1 2 4 */
#include "rma.h"

/* Element i of the array that all ranks have together, m at each, goes to place map(i). */
static int map(int i, int total) { return (5 * i + 3) % total; }

int main(void) {
    enum { M = 9 };
    int a[M], *b = begin(M), total = size * M, origin_at[M], target_at[M];
    for (int i = 0; i < M; i++) b[i] = 1000 + me * M + i;
    FENCE();
    for (int rank = 0; rank < size; rank++) {
        int n = 0;
        for (int i = 0; i < M; i++) {
            int at = map(me * M + i, total);
            if (at / M == rank) {
                origin_at[n] = i;
                target_at[n++] = at % M;
            }
        }
        MPI_Datatype origin, target;
        OK(MPI_Type_create_indexed_block(n, 1, origin_at, MPI_INT, &origin));
        OK(MPI_Type_create_indexed_block(n, 1, target_at, MPI_INT, &target));
        OK(MPI_Type_commit(&origin));
        OK(MPI_Type_commit(&target));
        OK(MPI_Get(a, 1, origin, rank, 0, 1, target, win));
        OK(MPI_Type_free(&origin));
        OK(MPI_Type_free(&target));
    }
    FENCE();
    for (int i = 0; i < M; i++) CHECK(a[i] == 1000 + map(me * M + i, total));
    return done();
}
