/* Reduce_scatter and reduce_scatter_block: in place and not, empty blocks.
   ranks 1 2 3 4 5 */
#include "check.h"

int main(void) {
    int rank, size, lengths[] = {1, 4, 5000};
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int l = 0; l < COUNT(lengths); l++) {
        int n = lengths[l], *from = malloc(2 * n * size * sizeof(int)), *to = malloc(2 * n * size * sizeof(int));
        for (int in_place = 0; in_place < 2; in_place++) {
            int counts[8], first = 0, right = 1;
            for (int i = 0; i < 2 * n * size; i++) from[i] = rank + i, to[i] = in_place ? rank + i : -1;
            OK(MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : from, to, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            for (int i = 0; i < n; i++) right &= to[i] == size * (size - 1) / 2 + size * (rank * n + i);
            CHECK(right);
            for (int i = 0; i < 2 * n * size; i++) to[i] = in_place ? rank + i : -1;
            for (int i = 0; i < size; i++) {
                counts[i] = n * (i % 3);
                if (i < rank) first += counts[i];
            }
            OK(MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : from, to, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
            for (int i = 0; i < counts[rank]; i++) right &= to[i] == size * (size - 1) / 2 + size * (first + i);
            if (!in_place) right &= to[counts[rank]] == -1;
            CHECK(right);
        }
        free(from);
        free(to);
    }
    return finish();
}
