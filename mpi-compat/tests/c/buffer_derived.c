/* A buffered send of a derived datatype is packed into the buffer. */
#include "check.h"

int main(void) {
    static char room[20000];
    static int data[3000], got[3000];
    MPI_Datatype type;
    void *address;
    int size;
    start();
    for (int i = 0; i < 3000; i++) data[i] = i;
    OK(MPI_Type_vector(1000, 2, 3, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Buffer_attach(room, sizeof room));
    OK(MPI_Bsend(data, 1, type, 0, 0, MPI_COMM_SELF));
    memset(data, 0, sizeof data);
    OK(MPI_Recv(got, 1, type, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    for (int i = 0; i < 3000; i++) CHECK(got[i] == (i % 3 < 2 ? i : 0));
    OK(MPI_Buffer_detach(&address, &size));
    OK(MPI_Type_free(&type));
    return finish();
}
