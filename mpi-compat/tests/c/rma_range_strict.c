/* Accesses that end or begin outside the target's memory, by every call: MPI_ERR_RMA_RANGE, and nothing is changed.
   ranks 1 2
   not on peers: MPICH does not look */
#include "rma.h"

int main(void) {
    int values[8] = {0}, old[8];
    MPI_Datatype wide;
    MPI_Request request;
    int *memory = begin(4);
    OK(MPI_Type_vector(2, 1, 4, MPI_INT, &wide));
    OK(MPI_Type_commit(&wide));
    OK(MPI_Win_lock_all(0, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(values, 5, MPI_INT, right(), 0, 5, MPI_INT, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Get(old, 2, MPI_INT, right(), 3, 2, MPI_INT, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(values, 2, MPI_INT, right(), 0, 1, wide, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Accumulate(values, 2, MPI_INT, right(), 3, 2, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Get_accumulate(values, 1, MPI_INT, old, 1, MPI_INT, right(), 4, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Fetch_and_op(values, old, MPI_INT, right(), 4, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Compare_and_swap(values, values, old, MPI_INT, right(), 4, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Rput(values, 5, MPI_INT, right(), 0, 5, MPI_INT, win, &request));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Rget(old, 5, MPI_INT, right(), 0, 5, MPI_INT, win, &request));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Raccumulate(values, 5, MPI_INT, right(), 0, 5, MPI_INT, MPI_SUM, win, &request));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    for (int i = 0; i < 4; i++) CHECK(memory[i] == -1);
    OK(MPI_Win_unlock(me, win));
    OK(MPI_Type_free(&wide));
    return done();
}
