/* MPI_Parrived with a null request and with an inactive one; a message without partitions.
   not on peers: they check less */
#include "check.h"

int main(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    int value = 0, flag = 0;
    start();
    OK(MPI_Parrived(request, 0, &flag));
    CHECK(flag == 1);
    OK(MPI_Precv_init(&value, 1, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request));
    flag = 0;
    OK(MPI_Parrived(request, 5, &flag));
    CHECK(flag == 1);
    OK(MPI_Request_free(&request));
    FAILS(MPI_ERR_COUNT, MPI_Precv_init(&value, 0, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request));
    FAILS(MPI_ERR_COUNT, MPI_Psend_init(&value, 0, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request));
    return finish();
}
