/* Derived datatypes on either side: the elements arrive in their order, and the gaps stay.
   ranks 2 */
#include "check.h"

enum { N = 1500 };

int main(void) {
    static int matrix[N][8], other[8][N];
    MPI_Datatype column, columns, row, pair, resized;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    OK(MPI_Type_vector(N, 1, 8, MPI_INT, &column));
    OK(MPI_Type_create_resized(column, 0, sizeof(int), &columns));
    OK(MPI_Type_contiguous(N, MPI_INT, &row));
    OK(MPI_Type_vector(2, 1, 3, MPI_INT, &pair));
    OK(MPI_Type_create_resized(pair, 0, 8 * sizeof(int), &resized));
    OK(MPI_Type_commit(&columns));
    OK(MPI_Type_commit(&row));
    OK(MPI_Type_commit(&resized));
    const int some[] = {1, 2, 8};
    for (int i = 0; i < COUNT(some); i++) {
        int n = some[i];
        if (me == 0) {
            for (int y = 0; y < N; y++)
                for (int x = 0; x < 8; x++) matrix[y][x] = 1000 * x + y;
            OK(MPI_Send(matrix, n, columns, 1, 0, MPI_COMM_WORLD));
            OK(MPI_Send(&matrix[0][2], 5, columns, 1, 1, MPI_COMM_WORLD));
            OK(MPI_Ssend(matrix, 100, resized, 1, 2, MPI_COMM_WORLD));
        } else {
            MPI_Status status;
            int count;
            memset(other, -1, sizeof other);
            OK(MPI_Recv(other, 8, row, 0, 0, MPI_COMM_WORLD, &status));
            OK(MPI_Get_count(&status, row, &count));
            CHECK(count == n);
            OK(MPI_Get_elements(&status, row, &count));
            CHECK(count == n * N);
            for (int x = 0; x < 8; x++)
                for (int y = 0; y < N; y++) CHECK(other[x][y] == (x < n ? 1000 * x + y : -1));
            /* The data goes from layout to layout. */
            memset(matrix, -1, sizeof matrix);
            OK(MPI_Recv(&matrix[0][1], 5, columns, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int y = 0; y < N; y++)
                for (int x = 0; x < 8; x++) CHECK(matrix[y][x] == (x >= 1 && x < 6 ? 1000 * (x + 1) + y : -1));
            memset(matrix, -1, sizeof matrix);
            OK(MPI_Recv(matrix, 100, resized, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            for (int y = 0; y < 100; y++)
                for (int x = 0; x < 8; x++) CHECK(matrix[y][x] == (x == 0 || x == 3 ? 1000 * x + y : -1));
        }
    }
    OK(MPI_Type_free(&column));
    OK(MPI_Type_free(&columns));
    OK(MPI_Type_free(&row));
    OK(MPI_Type_free(&pair));
    OK(MPI_Type_free(&resized));
    return finish();
}
