/* Blocks of different lengths, some of them empty, in any order and with gaps, whose layout only the root knows.
   ranks 1 2 3 4 5 */
#include "check.h"

int main(void) {
    int rank, size;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int root = 0; root < size; root++) {
        int counts[8], displs[8], at = 1, own[8], got[8];
        int all[100];
        for (int i = 0; i < 100; i++) all[i] = -1;
        /* The last rank's block comes first; a gap of one behind each. */
        for (int i = size - 1; i >= 0; i--) {
            counts[i] = (i + root) % 3;
            displs[i] = at;
            at += counts[i] + 1;
        }
        for (int i = 0; i < 8; i++) own[i] = 10 * rank + i, got[i] = -1;
        OK(MPI_Gatherv(own, counts[rank], MPI_INT, all, rank == root ? counts : NULL, rank == root ? displs : NULL, MPI_INT,
                       root, MPI_COMM_WORLD));
        if (rank == root) {
            int expected[100];
            for (int i = 0; i < 100; i++) expected[i] = -1;
            for (int i = 0; i < size; i++)
                for (int j = 0; j < counts[i]; j++) expected[displs[i] + j] = 10 * i + j;
            CHECK(memcmp(all, expected, sizeof all) == 0);
        }
        OK(MPI_Scatterv(all, rank == root ? counts : NULL, rank == root ? displs : NULL, MPI_INT, got, counts[rank], MPI_INT,
                        root, MPI_COMM_WORLD));
        for (int i = 0; i < 8; i++) CHECK(got[i] == (i < counts[rank] ? own[i] : -1));
        /* The root's data is in place. */
        if (rank == root) {
            for (int i = 0; i < 100; i++) all[i] = -1;
            memcpy(all + displs[rank], own, counts[rank] * sizeof(int));
            OK(MPI_Gatherv(MPI_IN_PLACE, 0, MPI_INT, all, counts, displs, MPI_INT, root, MPI_COMM_WORLD));
            for (int i = 0; i < size; i++)
                for (int j = 0; j < counts[i]; j++) CHECK(all[displs[i] + j] == 10 * i + j);
            OK(MPI_Scatterv(all, counts, displs, MPI_INT, MPI_IN_PLACE, 0, MPI_INT, root, MPI_COMM_WORLD));
        } else {
            OK(MPI_Gatherv(own, counts[rank], MPI_INT, NULL, NULL, NULL, MPI_INT, root, MPI_COMM_WORLD));
            for (int i = 0; i < 8; i++) got[i] = -1;
            OK(MPI_Scatterv(NULL, NULL, NULL, MPI_INT, got, counts[rank], MPI_INT, root, MPI_COMM_WORLD));
            for (int i = 0; i < 8; i++) CHECK(got[i] == (i < counts[rank] ? own[i] : -1));
        }
    }
    return finish();
}
