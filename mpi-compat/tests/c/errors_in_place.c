/* MPI_IN_PLACE and MPI_BUFFER_AUTOMATIC are errors in calls that do not accept them, and are never accessed as
   addresses.
   not on peers: not all of this is checked there */
#include "check.h"

static MPI_Win win;
static MPI_Comm ring;

static int says(int code, const char *words) {
    char text[MPI_MAX_ERROR_STRING];
    int len;
    MPI_Error_string(code, text, &len);
    return strstr(text, words) != NULL;
}

static void refused(void *bad, const char *name) {
    int x = 0, position = 0;
    MPI_Aint at = 0;
    MPI_Request request;
    MPI_Datatype inside;
    MPI_Win new;

    FAILS(MPI_ERR_BUFFER, MPI_Put(bad, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_BUFFER, MPI_Get(bad, 1, MPI_INT, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_BUFFER, MPI_Rput(bad, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request));
    FAILS(MPI_ERR_BUFFER, MPI_Rget(bad, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request));
    FAILS(MPI_ERR_BUFFER, MPI_Accumulate(bad, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_BUFFER, MPI_Accumulate(bad, 2, MPI_INT, 0, 0, 2, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_BUFFER, MPI_Get_accumulate(&x, 1, MPI_INT, bad, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_BUFFER, MPI_Get_accumulate(bad, 1, MPI_INT, &x, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_BUFFER, MPI_Fetch_and_op(bad, &x, MPI_INT, 0, 0, MPI_SUM, win));
    FAILS(MPI_ERR_BUFFER, MPI_Fetch_and_op(&x, bad, MPI_INT, 0, 0, MPI_SUM, win));
    FAILS(MPI_ERR_BUFFER, MPI_Fetch_and_op(NULL, bad, MPI_INT, 0, 0, MPI_NO_OP, win));
    FAILS(MPI_ERR_BUFFER, MPI_Compare_and_swap(bad, &x, &x, MPI_INT, 0, 0, win));
    FAILS(MPI_ERR_BUFFER, MPI_Compare_and_swap(&x, bad, &x, MPI_INT, 0, 0, win));
    FAILS(MPI_ERR_BUFFER, MPI_Compare_and_swap(&x, &x, bad, MPI_INT, 0, 0, win));
    FAILS(MPI_ERR_ARG, MPI_Win_create(bad, 64, 1, MPI_INFO_NULL, MPI_COMM_SELF, &new));

    FAILS(MPI_ERR_BUFFER, MPI_Pack(bad, 1, MPI_INT, &x, 4, &position, MPI_COMM_SELF));
    FAILS(MPI_ERR_BUFFER, MPI_Pack(&x, 1, MPI_INT, bad, 4, &position, MPI_COMM_SELF));
    FAILS(MPI_ERR_BUFFER, MPI_Unpack(bad, 4, &position, &x, 1, MPI_INT, MPI_COMM_SELF));
    FAILS(MPI_ERR_BUFFER, MPI_Unpack(&x, 4, &position, bad, 1, MPI_INT, MPI_COMM_SELF));
    FAILS(MPI_ERR_BUFFER, MPI_Pack_external("external32", bad, 1, MPI_INT, &x, 4, &at));
    FAILS(MPI_ERR_BUFFER, MPI_Unpack_external("external32", &x, 4, &at, bad, 1, MPI_INT));

    /* A type with an offset, which allows absolute addresses, does not make a constant an address. */
    MPI_Aint offset = 4096;
    MPI_Type_create_hindexed_block(1, 1, &offset, MPI_INT, &inside);
    MPI_Type_commit(&inside);
    FAILS(MPI_ERR_BUFFER, MPI_Send(bad, 1, inside, MPI_PROC_NULL, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_BUFFER, MPI_Put(bad, 1, inside, 0, 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_BUFFER, MPI_Bcast(bad, 1, inside, 0, MPI_COMM_SELF));
    MPI_Type_free(&inside);

    FAILS(MPI_ERR_BUFFER, MPI_Send(bad, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_BUFFER, MPI_Irecv(bad, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request));
    FAILS(MPI_ERR_BUFFER, MPI_Psend_init(bad, 1, 1, MPI_INT, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &request));
    FAILS(MPI_ERR_BUFFER, MPI_Bcast(bad, 1, MPI_INT, 0, MPI_COMM_SELF));
    FAILS(MPI_ERR_BUFFER, MPI_Reduce_local(bad, &x, 1, MPI_INT, MPI_SUM));
    FAILS(MPI_ERR_BUFFER, MPI_Reduce_local(&x, bad, 1, MPI_INT, MPI_SUM));
    FAILS(MPI_ERR_BUFFER, MPI_Neighbor_allgather(bad, 1, MPI_INT, &x, 1, MPI_INT, ring));
    FAILS(MPI_ERR_BUFFER, MPI_Neighbor_allgather(&x, 1, MPI_INT, bad, 1, MPI_INT, ring));
    FAILS(MPI_ERR_BUFFER, MPI_Send(bad, 1, MPI_INT, 0, 0, MPI_COMM_SELF));
    CHECK(says(MPI_Put(bad, 1, MPI_INT, 0, 0, 1, MPI_INT, win), name));

    /* A call without data accepts any address. */
    OK(MPI_Send(bad, 0, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_SELF));
    OK(MPI_Put(bad, 0, MPI_INT, 0, 0, 0, MPI_INT, win));
    OK(MPI_Pack(bad, 0, MPI_INT, &x, 4, &position, MPI_COMM_SELF));
}

int main(void) {
    int x[4] = {0}, one = 1, yes = 1, counts[2] = {0, 0}, displs[2] = {0, 0};
    void *memory;
    start();
    OK(MPI_Cart_create(MPI_COMM_SELF, 1, &one, &yes, 0, &ring));
    OK(MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN));
    OK(MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_SELF, &memory, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_lock_all(0, win));
    refused(MPI_IN_PLACE, "MPI_IN_PLACE");
    refused(MPI_BUFFER_AUTOMATIC, "MPI_BUFFER_AUTOMATIC");
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));

    /* Neighbourhood collectives report it whatever the other arguments are. */
    CHECK(says(MPI_Neighbor_allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, 1, MPI_INT, ring), "MPI_IN_PLACE, which is not"));
    CHECK(says(MPI_Neighbor_allgather(MPI_IN_PLACE, 0, MPI_INT, x, 0, MPI_INT, ring), "MPI_IN_PLACE, which is not"));
    CHECK(says(MPI_Neighbor_alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, 1, MPI_INT, ring), "MPI_IN_PLACE, which is not"));
    CHECK(says(MPI_Neighbor_alltoallv(MPI_IN_PLACE, counts, displs, MPI_DATATYPE_NULL, x, counts, displs, MPI_INT, ring),
               "MPI_IN_PLACE, which is not"));
    OK(MPI_Comm_free(&ring));
    return finish();
}
