/* Allgather and allgatherv: in place and not, long ones, blocks in any order, datatypes with gaps.
   ranks 1 2 3 4 5 */
#include "check.h"

enum { LONG = 40000 };

int main(void) {
    int rank, size, counts[8], displs[8], own[8], all[64], lengths[] = {1, 7, LONG};
    MPI_Datatype spaced;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int l = 0; l < COUNT(lengths); l++) {
        int n = lengths[l];
        int *some = malloc(n * sizeof(int)), *whole = malloc(n * size * sizeof(int));
        for (int in_place = 0; in_place < 2; in_place++) {
            for (int i = 0; i < n * size; i++) whole[i] = -1;
            for (int i = 0; i < n; i++) some[i] = rank * n + i;
            if (in_place) {
                memcpy(whole + rank * n, some, n * sizeof(int));
                OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, whole, n, MPI_INT, MPI_COMM_WORLD));
            } else {
                OK(MPI_Allgather(some, n, MPI_INT, whole, n, MPI_INT, MPI_COMM_WORLD));
            }
            int right = 1;
            for (int i = 0; i < n * size; i++) right &= whole[i] == i;
            CHECK(right);
        }
        free(some);
        free(whole);
    }
    /* Every block goes to every other position. */
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &spaced));
    OK(MPI_Type_commit(&spaced));
    for (int i = 0; i < 64; i++) all[i] = -1;
    own[0] = 2 * rank, own[1] = 2 * rank + 1;
    OK(MPI_Allgather(own, 2, MPI_INT, all, 1, spaced, MPI_COMM_WORLD));
    for (int i = 0; i < size; i++) CHECK(all[3 * i] == 2 * i && all[3 * i + 1] == -1 && all[3 * i + 2] == 2 * i + 1);
    OK(MPI_Type_free(&spaced));

    for (int i = 0, at = 0; i < size; i++) {
        int of = size - 1 - i;
        counts[of] = of % 3;
        displs[of] = at;
        at += counts[of] + 1;
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        for (int i = 0; i < 64; i++) all[i] = -1;
        for (int i = 0; i < 8; i++) own[i] = 10 * rank + i;
        if (in_place) {
            memcpy(all + displs[rank], own, counts[rank] * sizeof(int));
            OK(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, counts, displs, MPI_INT, MPI_COMM_WORLD));
        } else {
            OK(MPI_Allgatherv(own, counts[rank], MPI_INT, all, counts, displs, MPI_INT, MPI_COMM_WORLD));
        }
        for (int i = 0; i < size; i++) {
            for (int j = 0; j < counts[i]; j++) CHECK(all[displs[i] + j] == 10 * i + j);
            CHECK(all[displs[i] + counts[i]] == -1);
        }
    }
    return finish();
}
