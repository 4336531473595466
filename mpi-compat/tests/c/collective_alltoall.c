/* Alltoall, alltoallv and alltoallw: in place and not, empty blocks, another datatype for each peer.
   ranks 1 2 3 4 5 */
#include "check.h"

enum { LONG = 20000 };

int main(void) {
    int rank, size, lengths[] = {1, 5, LONG};
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int l = 0; l < COUNT(lengths); l++) {
        int n = lengths[l], right = 1;
        int *from = malloc(n * size * sizeof(int)), *to = malloc(n * size * sizeof(int));
        for (int i = 0; i < n * size; i++) from[i] = 1000 * rank + i / n + 7 * (i % n), to[i] = -1;
        OK(MPI_Alltoall(from, n, MPI_INT, to, n, MPI_INT, MPI_COMM_WORLD));
        for (int i = 0; i < n * size; i++) right &= to[i] == 1000 * (i / n) + rank + 7 * (i % n);
        OK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, from, n, MPI_INT, MPI_COMM_WORLD));
        CHECK(right && memcmp(from, to, n * size * sizeof(int)) == 0);
        free(from);
        free(to);
    }

    int counts[8], back[8], displs[8], rdispls[8], from[100], to[100], at = 0, rat = 0;
    for (int i = 0; i < 100; i++) from[i] = -1, to[i] = -1;
    for (int i = 0; i < size; i++) {
        counts[i] = (rank + 2 * i) % 3;
        back[i] = (i + 2 * rank) % 3;
        displs[i] = at;
        at += counts[i] + 1;
        rdispls[size - 1 - i] = rat;
        rat += (size - 1 - i + 2 * rank) % 3 + 1;
        for (int j = 0; j < counts[i]; j++) from[displs[i] + j] = 100 * rank + 10 * i + j;
    }
    rat = 0;
    for (int i = size - 1; i >= 0; i--) rdispls[i] = rat, rat += back[i] + 1;
    OK(MPI_Alltoallv(from, counts, displs, MPI_INT, to, back, rdispls, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < back[i]; j++) CHECK(to[rdispls[i] + j] == 100 * i + 10 * rank + j);
        CHECK(to[rdispls[i] + back[i]] == -1);
    }
    /* In place, as many elements are received from a rank as are sent to it. */
    for (int i = 0; i < size; i++) {
        counts[i] = 1 + (rank + i) % 2;
        for (int j = 0; j < counts[i]; j++) to[3 * i + j] = 100 * rank + 10 * i + j;
        displs[i] = 3 * i;
    }
    OK(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_INT, to, counts, displs, MPI_INT, MPI_COMM_WORLD));
    for (int i = 0; i < size; i++)
        for (int j = 0; j < counts[i]; j++) CHECK(to[3 * i + j] == 100 * i + 10 * rank + j);

    /* Doubles to even ranks, every other int to odd ones; displacements are bytes. */
    MPI_Datatype spaced, types[8], own[8];
    char out[800], in[800];
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &spaced));
    OK(MPI_Type_commit(&spaced));
    memset(in, -1, sizeof in);
    for (int i = 0; i < size; i++) {
        types[i] = i % 2 == 0 ? MPI_DOUBLE : spaced;
        own[i] = rank % 2 == 0 ? MPI_DOUBLE : MPI_INT;
        counts[i] = 1;
        back[i] = rank % 2 == 0 ? 1 : 2;
        displs[i] = 16 * i;
        double d = 10 * rank + i;
        int pair[3] = {10 * rank + i, -7, -(10 * rank + i)};
        if (i % 2 == 0) memcpy(out + 16 * i, &d, sizeof d);
        else memcpy(out + 16 * i, pair, sizeof pair);
    }
    OK(MPI_Alltoallw(out, counts, displs, types, in, back, displs, own, MPI_COMM_WORLD));
    for (int i = 0; i < size; i++) {
        double d;
        int pair[2];
        memcpy(&d, in + 16 * i, sizeof d);
        memcpy(pair, in + 16 * i, sizeof pair);
        CHECK(rank % 2 == 0 ? d == 10 * i + rank : pair[0] == 10 * i + rank && pair[1] == -(10 * i + rank));
        CHECK(in[16 * i + 8] == -1);
    }
    OK(MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, in, back, displs, own, MPI_COMM_SELF));
    OK(MPI_Type_free(&spaced));
    return finish();
}
