/* Data that is packed in pieces is unpacked in pieces. */
#include "check.h"

int main(void) {
    int a = 7, b = 0, size, position = 0, sum = 0;
    double x[3] = {1.5, -2, 3.25}, y[3] = {0};
    char buffer[256];
    start();
    OK(MPI_Pack_size(1, MPI_INT, MPI_COMM_WORLD, &size));
    sum += size;
    OK(MPI_Pack_size(3, MPI_DOUBLE, MPI_COMM_WORLD, &size));
    sum += size;
    CHECK(sum >= (int)(sizeof a + sizeof x));
    OK(MPI_Pack(&a, 1, MPI_INT, buffer, sizeof buffer, &position, MPI_COMM_WORLD));
    CHECK(position >= (int)sizeof a);
    OK(MPI_Pack(x, 3, MPI_DOUBLE, buffer, sizeof buffer, &position, MPI_COMM_WORLD));
    CHECK(position <= sum);
    int end = position;
    position = 0;
    OK(MPI_Unpack(buffer, end, &position, &b, 1, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Unpack(buffer, end, &position, y, 3, MPI_DOUBLE, MPI_COMM_WORLD));
    CHECK(position == end && b == 7 && memcmp(x, y, sizeof x) == 0);
    return finish();
}
