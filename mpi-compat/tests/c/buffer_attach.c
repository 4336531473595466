/* A buffer can be attached once, and is returned with its size. */
#include "check.h"

int main(void) {
    static char room[5000];
    void *address = NULL;
    int size = 0;
    start();
    OK(MPI_Buffer_attach(room, sizeof room));
    OK(MPI_Buffer_flush());
    OK(MPI_Buffer_detach(&address, &size));
    CHECK(address == room && size == sizeof room);
    OK(MPI_Buffer_attach(room, 2000));
    OK(MPI_Buffer_detach(&address, &size));
    CHECK(address == room && size == 2000);
    return finish();
}
