/* A non-blocking collective progresses while its rank waits in other calls; its datatype, operator and communicator
   may be freed meanwhile.
   ranks 2 3 4 */
#include "check.h"

struct padded { int a, gap, b; };

static void add(void *in, void *inout, int *length, MPI_Datatype *type) {
    MPI_Aint lb, extent;
    CHECK(MPI_Type_get_extent(*type, &lb, &extent) == MPI_SUCCESS && extent == sizeof(struct padded));
    for (int i = 0; i < *length; i++) {
        ((struct padded *)inout)[i].a += ((struct padded *)in)[i].a;
        ((struct padded *)inout)[i].b += ((struct padded *)in)[i].b;
    }
}

int main(void) {
    MPI_Comm comm;
    MPI_Op op;
    MPI_Datatype type;
    MPI_Request request;
    MPI_Status status;
    int rank, size, blocks[] = {1, 1}, token = -1, flag;
    MPI_Aint at[] = {0, 8};
    enum { LONG = 20000 };
    static struct padded from[LONG], to[LONG];
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Type_create_hindexed(2, blocks, at, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Op_create(add, 1, &op));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int i = 0; i < LONG; i++) from[i] = (struct padded){rank, 0, i}, to[i] = (struct padded){-1, -7, -1};
    OK(MPI_Iallreduce(from, to, LONG, type, op, comm, &request));
    OK(MPI_Type_free(&type));
    OK(MPI_Op_free(&op));
    OK(MPI_Comm_free(&comm));
    /* Rank 0 completes the collective before it sends what the others wait for. */
    if (rank == 0) {
        OK(MPI_Wait(&request, &status));
        for (int i = 1; i < size; i++) OK(MPI_Send(&i, 1, MPI_INT, i, 0, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(token == rank);
        OK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&request, &status));
    }
    CHECK(request == MPI_REQUEST_NULL);
    int right = 1;
    for (int i = 0; i < LONG; i++) right &= to[i].a == size * (size - 1) / 2 && to[i].gap == -7 && to[i].b == size * i;
    CHECK(right);
    /* A blocking collective completes while a non-blocking one waits for a rank that has not started it. */
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    if (rank > 0) OK(MPI_Ibarrier(comm, &request));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) OK(MPI_Ibarrier(comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_free(&comm));
    return finish();
}
