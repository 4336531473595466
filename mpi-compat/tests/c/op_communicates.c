/* Functions that communicate, wait or test are refused inside an operator, at every rank and for every length, and the
   reduction goes on.
   ranks 1 3
   not on peers: they wait for ever */
#include "check.h"

static int calls, refused;
static MPI_Request receive;
static MPI_Win window;

static void add(void *in, void *inout, int *length, MPI_Datatype *type) {
    int flag, word = 0, wrong = 0;
    (void)type;
    for (int i = 0; i < *length; i++) ((int *)inout)[i] += ((int *)in)[i];
    calls++;
    MPI_Comm dup;
    wrong += class_of(MPI_Barrier(MPI_COMM_SELF)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Barrier(MPI_COMM_WORLD)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Comm_dup(MPI_COMM_SELF, &dup)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Send(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Recv(&word, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Iprobe(0, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Wait(&receive, MPI_STATUS_IGNORE)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Test(&receive, &flag, MPI_STATUS_IGNORE)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Get(&word, 1, MPI_INT, 0, 0, 1, MPI_INT, window)) != MPI_ERR_OTHER;
    wrong += class_of(MPI_Win_flush(0, window)) != MPI_ERR_OTHER;
    refused += wrong == 0;
}

int main(void) {
    int size, rank, *sum, word, *base;
    MPI_Op op;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Win_allocate(sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    *base = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, window));
    OK(MPI_Irecv(&word, 1, MPI_INT, rank, 5, MPI_COMM_WORLD, &receive));
    for (int n = 1; n <= 100000; n *= 100) {
        sum = malloc(n * sizeof *sum);
        for (int i = 0; i < n; i++) sum[i] = 1;
        OK(MPI_Allreduce(MPI_IN_PLACE, sum, n, MPI_INT, op, MPI_COMM_WORLD));
        for (int i = 0; i < n; i++)
            if (sum[i] != size) CHECK(!"a wrong sum");
        free(sum);
    }
    CHECK(refused == calls && (size == 1 || calls > 0));
    OK(MPI_Send(&rank, 1, MPI_INT, rank, 5, MPI_COMM_WORLD));
    OK(MPI_Wait(&receive, MPI_STATUS_IGNORE));
    CHECK(word == rank);
    OK(MPI_Win_unlock_all(window));
    OK(MPI_Win_free(&window));
    OK(MPI_Op_free(&op));
    return finish();
}
