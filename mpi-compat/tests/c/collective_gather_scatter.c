/* Gather and scatter to and from every root, with MPI_IN_PLACE at the root and with a column of a matrix as each block.
   ranks 1 2 3 4 5 */
#include "check.h"

int main(void) {
    int rank, size;
    MPI_Datatype column, narrow;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* A column of a matrix of 3 rows, resized so that the next block is the next column. */
    OK(MPI_Type_vector(3, 1, size, MPI_INT, &column));
    OK(MPI_Type_create_resized(column, 0, sizeof(int), &narrow));
    OK(MPI_Type_commit(&narrow));
    for (int root = 0; root < size; root++) {
        int own[3] = {100 * rank, 100 * rank + 1, 100 * rank + 2}, got[3] = {-1, -1, -1};
        int *all = malloc(3 * size * sizeof(int));
        for (int i = 0; i < 3 * size; i++) all[i] = -1;
        OK(MPI_Gather(own, 3, MPI_INT, rank == root ? all : NULL, 3, MPI_INT, root, MPI_COMM_WORLD));
        for (int i = 0; i < 3 * size; i++) CHECK(all[i] == (rank == root ? 100 * (i / 3) + i % 3 : -1));
        OK(MPI_Scatter(all, 3, MPI_INT, got, 3, MPI_INT, root, MPI_COMM_WORLD));
        for (int i = 0; i < 3; i++) CHECK(got[i] == own[i]);

        if (rank == root) {
            for (int i = 0; i < 3 * size; i++) all[i] = i / 3 == rank ? own[i % 3] : -1;
            OK(MPI_Gather(MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, all, 3, MPI_INT, root, MPI_COMM_WORLD));
            for (int i = 0; i < 3 * size; i++) CHECK(all[i] == 100 * (i / 3) + i % 3);
            OK(MPI_Scatter(all, 3, MPI_INT, MPI_IN_PLACE, -1, MPI_DATATYPE_NULL, root, MPI_COMM_WORLD));
            for (int i = 0; i < 3 * size; i++) CHECK(all[i] == 100 * (i / 3) + i % 3);
        } else {
            OK(MPI_Gather(own, 3, MPI_INT, NULL, -1, MPI_DATATYPE_NULL, root, MPI_COMM_WORLD));
            for (int i = 0; i < 3; i++) got[i] = -1;
            OK(MPI_Scatter(NULL, -1, MPI_DATATYPE_NULL, got, 3, MPI_INT, root, MPI_COMM_WORLD));
            for (int i = 0; i < 3; i++) CHECK(got[i] == own[i]);
        }

        for (int i = 0; i < 3 * size; i++) all[i] = -1;
        OK(MPI_Gather(own, 3, MPI_INT, all, 1, narrow, root, MPI_COMM_WORLD));
        for (int i = 0; rank == root && i < 3 * size; i++) CHECK(all[i] == 100 * (i % size) + i / size);
        for (int i = 0; i < 3; i++) got[i] = -1;
        OK(MPI_Scatter(all, 1, narrow, got, 3, MPI_INT, root, MPI_COMM_WORLD));
        for (int i = 0; i < 3; i++) CHECK(got[i] == own[i]);
        free(all);
    }
    OK(MPI_Type_free(&column));
    OK(MPI_Type_free(&narrow));
    return finish();
}
