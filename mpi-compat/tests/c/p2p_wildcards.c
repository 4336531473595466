/* The statuses of receives from any source and with any tag have the actual source and tag.
   ranks 2 4 */
#include "check.h"

int main(void) {
    int size, sum = 0;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (me > 0) {
        OK(MPI_Send(&me, 1, MPI_INT, 0, 10 + me, MPI_COMM_WORLD));
        OK(MPI_Send(&me, 1, MPI_INT, 0, 5, MPI_COMM_WORLD));
    } else {
        for (int i = 1; i < size; i++) {
            MPI_Status status;
            int value;
            OK(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status));
            CHECK(status.MPI_SOURCE == value && status.MPI_TAG == 5);
            OK(MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
            CHECK(status.MPI_SOURCE == value && status.MPI_TAG == 10 + value);
            sum += value;
        }
        CHECK(sum == size * (size - 1) / 2);
    }
    return finish();
}
