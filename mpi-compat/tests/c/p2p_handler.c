/* The error of a request is told to the error handler of its communicator.
   ranks 2 */
#include "check.h"

static MPI_Comm heard;
static int class;

static void handler(MPI_Comm *comm, int *code, ...) {
    heard = *comm;
    class = class_of(*code);
}

int main(void) {
    int data[2] = {1, 2}, got[2];
    MPI_Request request;
    MPI_Errhandler mine;
    start();
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine));
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Send(data, 2, MPI_INT, 1, 0, MPI_COMM_WORLD));
    } else {
        OK(MPI_Irecv(got, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(heard == MPI_COMM_WORLD && class == MPI_ERR_TRUNCATE);
    }
    OK(MPI_Errhandler_free(&mine));
    return finish();
}
