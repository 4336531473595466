/* A megabyte in each direction, in memory of the program with any alignment.
   ranks 2 3 */
#include "check.h"

enum { LEN = 1 << 20 };

int main(void) {
    int size;
    MPI_Win win;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (me + 1) % size, left = (me + size - 1) % size;
    unsigned char *memory = malloc(2 * LEN + 100), *base = memory + 13, *data = malloc(LEN), *got = malloc(LEN);
    OK(MPI_Win_create(base, 2 * LEN + 5, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    for (int round = 0; round < 3; round++) {
        fill(data, LEN, me + round);
        fill(base + LEN, LEN, 50 + me + round);
        OK(MPI_Win_fence(0, win));
        OK(MPI_Put(data, LEN, MPI_BYTE, right, 5, LEN, MPI_BYTE, win));
        OK(MPI_Get(got, LEN - 10, MPI_BYTE, left, LEN + 10, LEN - 10, MPI_BYTE, win));
        OK(MPI_Win_fence(0, win));
        CHECK(is_filled(base + 5, LEN, left + round));
        fill(data, LEN, 50 + left + round);
        CHECK(!memcmp(got, data + 10, LEN - 10));
    }
    OK(MPI_Win_free(&win));
    free(memory);
    free(data);
    free(got);
    return finish();
}
