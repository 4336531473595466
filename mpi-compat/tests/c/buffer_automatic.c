/* MPI_BUFFER_AUTOMATIC accepts messages of any size. */
#include "check.h"

int main(void) {
    static char data[300000], got[300000];
    void *address = NULL;
    int size = -1;
    start();
    OK(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
    for (int i = 0; i < 20; i++) {
        fill(data, sizeof data, i);
        OK(MPI_Bsend(data, sizeof data, MPI_CHAR, 0, 0, MPI_COMM_SELF));
    }
    for (int i = 0; i < 20; i++) {
        OK(MPI_Recv(got, sizeof got, MPI_CHAR, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        CHECK(is_filled(got, sizeof got, i));
    }
    OK(MPI_Buffer_detach(&address, &size));
    CHECK(address == MPI_BUFFER_AUTOMATIC && size == 0);
    return finish();
}
