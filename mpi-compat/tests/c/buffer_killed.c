/* A buffer whose messages cannot all be sent, since a rank was killed, is detached nevertheless.
   ranks 3
   code any
   says given back
   not on peers: they end the job, or wait */
#include "check.h"
#include <signal.h>
#include <unistd.h>

enum { LEN = 1 << 20 };

int main(void) {
    static char data[LEN], buffer[LEN + MPI_BSEND_OVERHEAD];
    void *detached = NULL;
    int bytes = 0;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 2) raise(SIGKILL);
    if (me == 0) {
        OK(MPI_Buffer_attach(buffer, sizeof buffer));
        /* No rank receives it. */
        OK(MPI_Bsend(data, LEN, MPI_BYTE, 1, 0, MPI_COMM_WORLD));
        FAILS(MPI_ERR_PROC_ABORTED, MPI_Buffer_detach(&detached, &bytes));
        CHECK(detached == buffer && bytes == (int)sizeof buffer);
        FAILS(MPI_ERR_BUFFER, MPI_Buffer_detach(&detached, &bytes));
        if (failures == 0) printf("given back\n");
    } else {
        FAILS(MPI_ERR_PROC_ABORTED, MPI_Barrier(MPI_COMM_WORLD));
    }
    fflush(stdout);
    _exit(1);
}
