/* More errors that are detected at the call; messages name function, argument and value.
   ranks 1 3
   not on peers: MPICH takes some of these, and has other messages */
#include "check.h"

static const char *text(int code) {
    static char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    return text;
}

int main(void) {
    int rank, size, a[16] = {1, 2, 3, 4}, b[16], counts[4] = {1, -2, 1, 1}, displs[4] = {0, 1, 2, 3}, code, result;
    MPI_Op freed;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    code = MPI_Bcast(a, 1, MPI_INT, 77, MPI_COMM_WORLD);
    CHECK(strstr(text(code), "MPI_Bcast") && strstr(text(code), "root is 77"));
    code = MPI_Allgather(a, -3, MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD);
    CHECK(strstr(text(code), "MPI_Allgather") && strstr(text(code), "sendcount is -3"));
    if (size > 1) {
        code = MPI_Allgatherv(a, 1, MPI_INT, b, counts, displs, MPI_INT, MPI_COMM_WORLD);
        CHECK(class_of(code) == MPI_ERR_COUNT && strstr(text(code), "recvcounts has -2 as element 1"));
    }
    FAILS(MPI_ERR_BUFFER, MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, MPI_COMM_WORLD));
    FAILS(MPI_ERR_BUFFER, MPI_Allgather(a, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, MPI_COMM_WORLD));
    FAILS(MPI_ERR_BUFFER, MPI_Allreduce(a, a + 1, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    FAILS(MPI_ERR_BUFFER, MPI_Alltoall(b + size - 1, 1, MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD));
    FAILS(MPI_ERR_ARG, MPI_Alltoallv(a, NULL, displs, MPI_INT, b, displs, displs, MPI_INT, MPI_COMM_WORLD));
    FAILS(MPI_ERR_TRUNCATE, MPI_Allgather(a, 2, MPI_INT, b, 1, MPI_INT, MPI_COMM_WORLD));
    FAILS(MPI_ERR_OP, MPI_Allreduce(a, b, 1, MPI_INT, MPI_REPLACE, MPI_COMM_WORLD));
    OK(MPI_Op_create((MPI_User_function *)1, 1, &freed));
    MPI_Op was = freed;
    OK(MPI_Op_free(&freed));
    FAILS(MPI_ERR_OP, MPI_Allreduce(a, b, 1, MPI_INT, was, MPI_COMM_WORLD));
    FAILS(MPI_ERR_COUNT, MPI_Bcast_c(a, INT64_MAX / 2, MPI_INT, 0, MPI_COMM_WORLD));
    /* A call with a wrong argument at one rank is made again. */
    if (rank == 0) FAILS(MPI_ERR_COUNT, MPI_Allreduce(&rank, &result, -1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Allreduce(&rank, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(result == size * (size - 1) / 2);
    return finish();
}
