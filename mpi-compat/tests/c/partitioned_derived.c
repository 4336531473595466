/* Partitions of a derived datatype on one side, and of its elements on the other.
   ranks 2 */
#include "check.h"

enum { PARTS = 4 };

int main(void) {
    MPI_Request request;
    MPI_Datatype pairs;
    int grid[PARTS * 6], line[PARTS * 4], rank;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    /* Two pairs with a gap between them, so that elements lie 5 integers apart, and the next one begins there. */
    OK(MPI_Type_vector(2, 2, 3, MPI_INT, &pairs));
    OK(MPI_Type_commit(&pairs));
    for (int i = 0; i < COUNT(grid); i++) grid[i] = rank == 0 ? i : -1;
    if (rank == 0) {
        OK(MPI_Psend_init(grid, PARTS, 1, pairs, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        for (int i = 0; i < PARTS; i++) OK(MPI_Pready(i, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Request_free(&request));
        OK(MPI_Precv_init(grid, 1, PARTS, pairs, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < 5 * PARTS; i++) CHECK(grid[i] == (i % 5 == 2 ? i : i + 1000));
        CHECK(grid[5 * PARTS] == 5 * PARTS);
    } else {
        OK(MPI_Precv_init(line, 8, 2, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < PARTS; i++)
            for (int j = 0; j < 4; j++) CHECK(line[4 * i + j] == 5 * i + j + j / 2);
        OK(MPI_Request_free(&request));
        for (int i = 0; i < COUNT(line); i++) line[i] += 1000;
        OK(MPI_Psend_init(line, COUNT(line), 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        for (int i = COUNT(line) - 1; i >= 0; i--) OK(MPI_Pready(i, request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Request_free(&request));
    }
    OK(MPI_Type_free(&pairs));
    return finish();
}
