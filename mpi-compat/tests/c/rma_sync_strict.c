/* Operations outside an epoch, by every call: MPI_ERR_RMA_SYNC.
   ranks 1 2
   not on peers: MPICH does not look */
#include "rma.h"

int main(void) {
    int value = 0, old = 0;
    MPI_Request request;
    begin(1);
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Get(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Accumulate(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Get_accumulate(&value, 1, MPI_INT, &old, 1, MPI_INT, right(), 0, 1, MPI_INT, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Fetch_and_op(&value, &old, MPI_INT, right(), 0, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Compare_and_swap(&value, &value, &old, MPI_INT, right(), 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Rput(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win, &request));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Rget(&value, 1, MPI_INT, right(), 0, 1, MPI_INT, win, &request));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_complete(win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_unlock(right(), win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_flush(right(), win));
    return done();
}
