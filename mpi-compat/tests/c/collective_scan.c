/* Scan and exscan: in place and not; exscan does not touch the result of rank 0.
   ranks 1 2 3 4 */
#include "check.h"

enum { LONG = 30000 };

int main(void) {
    int rank, size, lengths[] = {1, 6, LONG};
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int l = 0; l < COUNT(lengths); l++) {
        int n = lengths[l];
        int *from = malloc(n * sizeof(int)), *to = malloc(n * sizeof(int));
        for (int in_place = 0; in_place < 2; in_place++) {
            int right = 1;
            for (int i = 0; i < n; i++) from[i] = rank + i, to[i] = in_place ? rank + i : -1;
            OK(MPI_Scan(in_place ? MPI_IN_PLACE : from, to, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            for (int i = 0; i < n; i++) right &= to[i] == rank * (rank + 1) / 2 + (rank + 1) * i;
            for (int i = 0; i < n; i++) to[i] = in_place ? rank + i : -1;
            OK(MPI_Exscan(in_place ? MPI_IN_PLACE : from, to, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            for (int i = 0; rank > 0 && i < n; i++) right &= to[i] == rank * (rank - 1) / 2 + rank * i;
            for (int i = 0; rank == 0 && i < n; i++) right &= to[i] == (in_place ? i : -1);
            CHECK(right);
        }
        free(from);
        free(to);
    }
    return finish();
}
