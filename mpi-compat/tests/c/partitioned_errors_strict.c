/* Erroneous uses of partitioned communication.
   ranks 2
   not on peers: they do not look */
#include "check.h"

int main(void) {
    MPI_Request send, receive, plain;
    int data[4] = {0}, rank, flag, list[] = {0, 4};
    start();
    rank = rank_of(MPI_COMM_WORLD);
    FAILS(MPI_ERR_RANK, MPI_Precv_init(data, 4, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive));
    FAILS(MPI_ERR_TAG, MPI_Precv_init(data, 4, 1, MPI_INT, 0, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &receive));
    FAILS(MPI_ERR_RANK, MPI_Psend_init(data, 4, 1, MPI_INT, 2, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send));
    FAILS(MPI_ERR_COUNT, MPI_Psend_init(data, -1, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send));
    FAILS(MPI_ERR_TYPE, MPI_Psend_init(data, 4, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send));
    OK(MPI_Psend_init(data, 4, 1, MPI_INT, !rank, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send));
    OK(MPI_Precv_init(data, 3, 1, MPI_INT, !rank, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive));
    OK(MPI_Send_init(data, 1, MPI_INT, !rank, 0, MPI_COMM_WORLD, &plain));
    FAILS(MPI_ERR_REQUEST, MPI_Pready(0, send));
    FAILS(MPI_ERR_REQUEST, MPI_Pready(0, MPI_REQUEST_NULL));
    FAILS(MPI_ERR_REQUEST, MPI_Pready(0, receive));
    FAILS(MPI_ERR_REQUEST, MPI_Pready(0, plain));
    FAILS(MPI_ERR_REQUEST, MPI_Parrived(send, 0, &flag));
    OK(MPI_Start(&send));
    FAILS(MPI_ERR_REQUEST, MPI_Start(&send));
    FAILS(MPI_ERR_ARG, MPI_Pready(4, send));
    FAILS(MPI_ERR_ARG, MPI_Pready(-1, send));
    FAILS(MPI_ERR_ARG, MPI_Pready_list(2, list, send));
    FAILS(MPI_ERR_ARG, MPI_Pready(0, send));
    FAILS(MPI_ERR_REQUEST, MPI_Cancel(&send));
    OK(MPI_Pready_range(1, 3, send));
    OK(MPI_Start(&receive));
    FAILS(MPI_ERR_ARG, MPI_Parrived(receive, 3, &flag));
    /* The message is longer than the receive. */
    FAILS(MPI_ERR_TRUNCATE, MPI_Wait(&receive, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&send));
    OK(MPI_Request_free(&receive));
    OK(MPI_Request_free(&plain));
    /* A request that was never started may be freed, matched or not. */
    OK(MPI_Precv_init(data, 1, 1, MPI_INT, !rank, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &receive));
    OK(MPI_Request_free(&receive));
    return finish();
}
