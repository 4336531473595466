/* Dimensions are as even as possible; given ones stay. */
#include "check.h"

static void dims(int nodes, int n, int a, int b, int c, int x, int y, int z) {
    int d[3] = {a, b, c};
    OK(MPI_Dims_create(nodes, n, d));
    if (d[0] != x || (n > 1 && d[1] != y) || (n > 2 && d[2] != z)) {
        printf("FAILED %d in %d dimensions: %d %d %d\n", nodes, n, d[0], d[1], d[2]);
        failures++;
    }
}

int main(void) {
    int d[3] = {0, 4, 0};
    start();
    dims(6, 2, 0, 0, 0, 3, 2, 0);
    dims(7, 2, 0, 0, 0, 7, 1, 0);
    dims(6, 3, 0, 3, 0, 2, 3, 1);
    dims(1, 3, 0, 0, 0, 1, 1, 1);
    dims(12, 3, 0, 0, 0, 3, 2, 2);
    dims(36, 3, 0, 0, 0, 4, 3, 3);
    dims(1000, 3, 0, 0, 0, 10, 10, 10);
    dims(24, 2, 0, 0, 0, 6, 4, 0);
    dims(48, 2, 0, 0, 0, 8, 6, 0);
    dims(5, 1, 0, 0, 0, 5, 0, 0);
    dims(6, 2, 3, 2, 0, 3, 2, 0);
    FAILS(MPI_ERR_DIMS, MPI_Dims_create(7, 3, d));
    return finish();
}
