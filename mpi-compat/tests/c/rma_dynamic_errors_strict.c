/* Errors: memory that is attached twice, detached twice or not attached at all.
   not on peers: MPICH does not look */
#include "rma.h"

int main(void) {
    int memory[8] = {0}, value = 1, one = 1, other = 0;
    MPI_Aint at;
    start();
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_SELF, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_attach(win, memory, sizeof memory));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, memory, sizeof memory));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_attach(win, memory + 7, 100));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, memory + 1));
    FAILS(MPI_ERR_SIZE, MPI_Win_attach(win, &other, -1));
    FAILS(MPI_ERR_ARG, MPI_Win_attach(win, NULL, 4));
    OK(MPI_Win_attach(win, NULL, 0));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    OK(MPI_Get_address(&other, &at));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, 0, at, 1, MPI_INT, win));
    OK(MPI_Get_address(memory, &at));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(memory, 1, MPI_INT, 0, at - 4, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Get(memory, 8, MPI_INT, 0, at + 4, 8, MPI_INT, win));
    /* Types with addresses, counted from 0 and from before the memory. */
    for (int from = 0; from < 2; from++) {
        MPI_Datatype absolute;
        MPI_Aint before = from ? at - 100 : 0, there = MPI_Aint_diff(at + 8, before);
        value = 1 + from;
        OK(MPI_Type_create_hindexed(1, &one, &there, MPI_INT, &absolute));
        OK(MPI_Type_commit(&absolute));
        OK(MPI_Put(&value, 1, MPI_INT, 0, before, 1, absolute, win));
        OK(MPI_Accumulate(&value, 1, MPI_INT, 0, before, 1, absolute, MPI_SUM, win));
        OK(MPI_Win_flush(0, win));
        CHECK(memory[2] == 2 * value);
        FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, 0, before + 24, 1, absolute, win));
        OK(MPI_Type_free(&absolute));
    }
    /* An address is invalid once its memory is detached, and valid again when the memory is attached again. */
    for (value = 10; value < 12; value++) {
        OK(MPI_Put(&value, 1, MPI_INT, 0, at, 1, MPI_INT, win));
        OK(MPI_Win_flush(0, win));
        CHECK(memory[0] == value);
        OK(MPI_Win_detach(win, memory));
        FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, 0, at, 1, MPI_INT, win));
        FAILS(MPI_ERR_RMA_RANGE, MPI_Fetch_and_op(&value, &other, MPI_INT, 0, at, MPI_SUM, win));
        OK(MPI_Win_attach(win, memory, sizeof memory));
    }
    OK(MPI_Win_unlock(0, win));
    OK(MPI_Win_detach(win, memory));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, memory));
    CHECK(other == 0);
    OK(MPI_Win_free(&win));
    OK(MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_RMA_FLAVOR, MPI_Win_attach(win, &other, 4));
    FAILS(MPI_ERR_RMA_FLAVOR, MPI_Win_detach(win, &other));
    OK(MPI_Win_free(&win));
    return finish();
}
