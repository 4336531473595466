/* A buffered send without a buffer, or without enough room in it, is an error. */
#include "check.h"

int main(void) {
    static char room[5000 + MPI_BSEND_OVERHEAD], data[5000], got[5000];
    void *address;
    int size;
    start();
    OK(MPI_Buffer_attach(room, sizeof room));
    FAILS(MPI_ERR_BUFFER, MPI_Bsend(room, sizeof room, MPI_CHAR, 0, 0, MPI_COMM_SELF));
    OK(MPI_Bsend(data, 5000, MPI_CHAR, 0, 1, MPI_COMM_SELF));
    OK(MPI_Recv(got, 5000, MPI_CHAR, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    /* There is room again. */
    OK(MPI_Bsend(data, 5000, MPI_CHAR, 0, 1, MPI_COMM_SELF));
    OK(MPI_Recv(got, 5000, MPI_CHAR, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Buffer_detach(&address, &size));
    FAILS(MPI_ERR_BUFFER, MPI_Bsend(data, 1, MPI_CHAR, 0, 0, MPI_COMM_SELF));
    return finish();
}
