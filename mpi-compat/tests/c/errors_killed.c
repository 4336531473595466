/* After a rank is killed, every call that needs it returns MPI_ERR_PROC_ABORTED, through the handler, before the job
   ends.
   ranks 2 3
   code any
   says got the error
   not on peers: they end the job, or wait */
#include "check.h"
#include <signal.h>
#include <unistd.h>

static int calls_of_handler;

static void handler(MPI_Comm *comm, int *code, ...) {
    calls_of_handler += *comm == MPI_COMM_WORLD && class_of(*code) == MPI_ERR_PROC_ABORTED;
}

#define LOST(call) FAILS(MPI_ERR_PROC_ABORTED, call)

static int testing(void) {
    int value, flag = 0, code;
    MPI_Request request;
    if ((code = MPI_Irecv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &request)) != MPI_SUCCESS) return code;
    while (!flag)
        if ((code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE)) != MPI_SUCCESS) return code;
    return MPI_SUCCESS;
}

static int probing(void) {
    int flag = 0, code;
    while (!flag)
        if ((code = MPI_Iprobe(1, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE)) != MPI_SUCCESS) return code;
    return MPI_SUCCESS;
}

int main(void) {
    int value = 0, index;
    MPI_Request requests[2];
    MPI_Message message;
    MPI_Errhandler mine;
    start();
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
    if (rank_of(MPI_COMM_WORLD) == 1) {
        before_end_of(1, MPI_COMM_WORLD);
        raise(SIGKILL);
        return 0;
    }
    before_end_of(1, MPI_COMM_WORLD);
    LOST(MPI_Recv(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(calls_of_handler == 1);
    LOST(MPI_Ssend(&value, 1, MPI_INT, 1, 0, MPI_COMM_WORLD));
    LOST(MPI_Probe(1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    LOST(MPI_Mprobe(1, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
    LOST(MPI_Sendrecv(&value, 1, MPI_INT, 1, 0, &index, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 2; i++) OK(MPI_Irecv(&value, 1, MPI_INT, 1, i, MPI_COMM_WORLD, &requests[i]));
    LOST(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    LOST(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE));
    LOST(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    LOST(testing());
    LOST(probing());
    if (calls_of_handler != 10) printf("FAILED: the handler was called %d times\n", calls_of_handler);
    if (failures == 0) printf("got the error\n");
    fflush(stdout);
    _exit(1);
}
