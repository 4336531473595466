/* The error handler of the communicator is called for errors, also for errors of requests.
   ranks 2 */
#include "check.h"

static MPI_Comm handled_for;
static int class;

static void handler(MPI_Comm *comm, int *code, ...) {
    handled_for = *comm;
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
        CHECK(handled_for == MPI_COMM_WORLD && class == MPI_ERR_TRUNCATE);
    }
    handled_for = MPI_COMM_NULL;
    MPI_Send(data, -1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    CHECK(handled_for == MPI_COMM_WORLD && class == MPI_ERR_COUNT);
    OK(MPI_Errhandler_free(&mine));
    return finish();
}
