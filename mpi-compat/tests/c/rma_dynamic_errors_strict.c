/* Memory that is attached twice, detached twice or not attached at all.
   not on peers: MPICH does not look */
#include "rma.h"

int main(void) {
    int memory[8] = {0}, value = 1, other = 0;
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
