/* The receive buffer of an exclusive scan is not significant at rank 0, where it may be null or the send buffer.
   ranks 1 2 3
   not on peers: MPICH refuses such a buffer */
#include "check.h"

enum { LONG = 30000 };

int main(void) {
    const int lengths[] = {1, 6, LONG};
    start();
    const int rank = rank_of(MPI_COMM_WORLD);
    for (int l = 0; l < COUNT(lengths); l++)
        for (int is_null = 0; is_null < 2; is_null++) {
            int n = lengths[l], right = 1;
            int *from = malloc(n * sizeof(int)), *to = malloc(n * sizeof(int));
            for (int i = 0; i < n; i++) from[i] = rank + i, to[i] = -1;
            for (int time = 0; time < 3; time++)
                OK(MPI_Exscan(from, rank > 0 ? to : is_null ? NULL : from, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            for (int i = 0; i < n; i++)
                right &= from[i] == rank + i && (rank == 0 || to[i] == rank * (rank - 1) / 2 + rank * i);
            CHECK(right);
            free(from);
            free(to);
        }
    return finish();
}
