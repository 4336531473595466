/* Messages of all send modes, blocking and not, arrive.
   ranks 2 */
#include "check.h"

typedef int Send(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int Start(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

int main(void) {
    Send *const sends[] = {MPI_Send, MPI_Bsend, MPI_Ssend, MPI_Rsend};
    Start *const starts[] = {MPI_Isend, MPI_Ibsend, MPI_Issend, MPI_Irsend};
    static char room[2 * (40000 + MPI_BSEND_OVERHEAD)], data[40000], got[40000];
    const int lens[] = {4, 40000};
    start();
    int me = rank_of(MPI_COMM_WORLD), other = 1 - me;
    OK(MPI_Buffer_attach(room, sizeof room));
    for (int l = 0; l < 2; l++) {
        for (int mode = 0; mode < 4; mode++) {
            for (int blocking = 0; blocking < 2; blocking++) {
                MPI_Request receive, send;
                fill(data, lens[l], mode);
                memset(got, 0, sizeof got);
                OK(MPI_Irecv(got, sizeof got, MPI_CHAR, other, mode, MPI_COMM_WORLD, &receive));
                /* Both receives are posted, as ready sends need. */
                OK(MPI_Sendrecv(NULL, 0, MPI_INT, other, 9, NULL, 0, MPI_INT, other, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
                if (blocking) {
                    OK(sends[mode](data, lens[l], MPI_CHAR, other, mode, MPI_COMM_WORLD));
                } else {
                    OK(starts[mode](data, lens[l], MPI_CHAR, other, mode, MPI_COMM_WORLD, &send));
                    OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
                    CHECK(send == MPI_REQUEST_NULL);
                }
                OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
                CHECK(is_filled(got, lens[l], mode));
            }
        }
    }
    void *address;
    int size;
    OK(MPI_Buffer_detach(&address, &size));
    return finish();
}
