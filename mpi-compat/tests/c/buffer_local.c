/* Buffered sends are complete at once, without a receive; detach waits until all messages have been sent.
   ranks 2 */
#include "check.h"

enum { N = 20, LEN = 4000 };

int main(void) {
    static char room[N * (LEN + MPI_BSEND_OVERHEAD)], data[LEN], got[LEN];
    void *address;
    int size;
    start();
    int me = rank_of(MPI_COMM_WORLD), other = 1 - me;
    OK(MPI_Buffer_attach(room, sizeof room));
    for (int i = 0; i < N; i++) {
        fill(data, LEN, i);
        OK(MPI_Bsend(data, i % 2 ? LEN : i, MPI_CHAR, other, i, MPI_COMM_WORLD));
    }
    memset(data, 0, sizeof data);
    for (int i = N - 1; i >= 0; i--) {
        OK(MPI_Recv(got, LEN, MPI_CHAR, other, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(is_filled(got, i % 2 ? LEN : i, i));
    }
    OK(MPI_Buffer_detach(&address, &size));
    CHECK(address == room && size == sizeof room);
    return finish();
}
