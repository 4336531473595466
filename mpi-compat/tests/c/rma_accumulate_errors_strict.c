/* Invalid arguments of accumulates are errors of their classes.
   ranks 1
   not on peers: what is erroneous has classes of their own there */
#include "check.h"

static void nothing(void *in, void *inout, int *len, MPI_Datatype *type) {
    (void)in;
    (void)inout;
    (void)len;
    (void)type;
}

int main(void) {
    int base[4] = {0}, x = 1, y, z = 0;
    double d = 1;
    MPI_Win win;
    MPI_Op mine;
    MPI_Datatype pair, mixed;
    MPI_Request request;
    start();
    OK(MPI_Win_create(base, sizeof base, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Op_create(nothing, 1, &mine));
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    int lens[2] = {1, 1};
    MPI_Aint at[2] = {0, 4};
    MPI_Datatype types[2] = {MPI_INT, MPI_FLOAT};
    OK(MPI_Type_create_struct(2, lens, at, types, &mixed));
    OK(MPI_Type_commit(&mixed));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Accumulate(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Rput(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request));
    OK(MPI_Win_fence(0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Rput(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request));
    FAILS(MPI_ERR_OP, MPI_Accumulate(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, mine, win));
    FAILS(MPI_ERR_OP, MPI_Accumulate(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_OP_NULL, win));
    FAILS(MPI_ERR_OP, MPI_Accumulate(&d, 1, MPI_DOUBLE, 0, 0, 1, MPI_DOUBLE, MPI_BAND, win));
    FAILS(MPI_ERR_OP, MPI_Accumulate(&x, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_MAXLOC, win));
    FAILS(MPI_ERR_OP, MPI_Accumulate(base, 1, MPI_2INT, 0, 0, 1, MPI_2INT, MPI_SUM, win));
    FAILS(MPI_ERR_TYPE, MPI_Accumulate(&x, 1, MPI_FLOAT, 0, 0, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_TYPE, MPI_Accumulate(base, 1, mixed, 0, 0, 1, mixed, MPI_SUM, win));
    FAILS(MPI_ERR_TYPE, MPI_Fetch_and_op(base, base, pair, 0, 0, MPI_SUM, win));
    FAILS(MPI_ERR_TYPE, MPI_Compare_and_swap(&d, &d, &d, MPI_DOUBLE, 0, 0, win));
    FAILS(MPI_ERR_BUFFER, MPI_Compare_and_swap(&x, NULL, &y, MPI_INT, 0, 0, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Compare_and_swap(&x, &z, &y, MPI_INT, 0, 13, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Fetch_and_op(&x, &y, MPI_INT, 0, 16, MPI_SUM, win));
    FAILS(MPI_ERR_ARG, MPI_Accumulate(&x, 1, MPI_INT, 0, 0, 2, MPI_INT, MPI_SUM, win));
    OK(MPI_Accumulate(&x, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, MPI_SUM, win));
    OK(MPI_Fetch_and_op(&x, &y, MPI_INT, 0, 4, MPI_SUM, win));
    OK(MPI_Win_fence(0, win));
    CHECK(base[1] == 1 && y == 0);
    OK(MPI_Win_free(&win));
    OK(MPI_Op_free(&mine));
    OK(MPI_Type_free(&pair));
    OK(MPI_Type_free(&mixed));
    return finish();
}
