/* A partitioned request that is freed before it is matched still takes part in matching.
   ranks 2 */
#include "check.h"

int main(void) {
    MPI_Request first, second;
    int value[2] = {7, 8};
    start();
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(MPI_Psend_init(&value[0], 1, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &first));
        OK(MPI_Request_free(&first));
        OK(MPI_Psend_init(&value[1], 1, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &second));
        OK(MPI_Start(&second));
        OK(MPI_Pready(0, second));
    } else {
        OK(MPI_Precv_init(&value[0], 1, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &first));
        OK(MPI_Request_free(&first));
        OK(MPI_Precv_init(&value[1], 1, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &second));
        value[1] = -1;
        OK(MPI_Start(&second));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Wait(&second, MPI_STATUS_IGNORE));
    CHECK(value[0] == 7 && value[1] == 8);
    OK(MPI_Request_free(&second));
    return finish();
}
