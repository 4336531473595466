/* A communicator's own buffer takes precedence over the process's; flush waits for the messages in it. */
#include "check.h"

int main(void) {
    static char room[2000], other[10000], data[4000], got[4000];
    MPI_Request request;
    void *address;
    int size;
    start();
    OK(MPI_Comm_attach_buffer(MPI_COMM_SELF, room, sizeof room));
    OK(MPI_Buffer_attach(other, sizeof other));
    /* The process's buffer has room, but is not used. */
    FAILS(MPI_ERR_BUFFER, MPI_Bsend(data, 4000, MPI_CHAR, 0, 0, MPI_COMM_SELF));
    OK(MPI_Bsend(data, 4000, MPI_CHAR, rank_of(MPI_COMM_WORLD), 0, MPI_COMM_WORLD));
    OK(MPI_Bsend(data, 100, MPI_CHAR, 0, 0, MPI_COMM_SELF));
    OK(MPI_Recv(got, 100, MPI_CHAR, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Comm_flush_buffer(MPI_COMM_SELF));
    OK(MPI_Comm_iflush_buffer(MPI_COMM_SELF, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Recv(got, 4000, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Buffer_iflush(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_detach_buffer(MPI_COMM_SELF, &address, &size));
    CHECK(address == room && size == sizeof room);
    OK(MPI_Buffer_detach(&address, &size));
    CHECK(address == other);
    return finish();
}
