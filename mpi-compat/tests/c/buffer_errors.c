/* Errors: a buffer that is attached twice, and detaching without a buffer.
   not on peers: MPICH has another class */
#include "check.h"

int main(void) {
    static char room[5000];
    void *address;
    int size;
    start();
    FAILS(MPI_ERR_BUFFER, MPI_Buffer_attach(NULL, 100));
    FAILS(MPI_ERR_COUNT, MPI_Buffer_attach(room, -1));
    FAILS(MPI_ERR_BUFFER, MPI_Buffer_detach(&address, &size));
    OK(MPI_Buffer_attach(room, sizeof room));
    FAILS(MPI_ERR_BUFFER, MPI_Buffer_attach(room, sizeof room));
    FAILS(MPI_ERR_ARG, MPI_Buffer_detach(NULL, &size));
    OK(MPI_Buffer_detach(&address, &size));
    FAILS(MPI_ERR_COMM, MPI_Comm_attach_buffer(MPI_COMM_NULL, room, sizeof room));
    FAILS(MPI_ERR_BUFFER, MPI_Comm_detach_buffer(MPI_COMM_SELF, &address, &size));
    return finish();
}
