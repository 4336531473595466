/* If a rank calls MPI_Finalize, the error of a rank that waits for it in a collective or a fence names it.
   ranks 2
   code any
   says the peer has finalized
   not on peers: the ranks wait forever */
#include "check.h"

int main(void) {
    MPI_Win window;
    int *base, x = 0;
    start();
    OK(MPI_Win_allocate(4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    if (rank_of(MPI_COMM_WORLD) == 0) {
        CHECK(MPI_Win_fence(0, window) != MPI_SUCCESS);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
        MPI_Allreduce(MPI_IN_PLACE, &x, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        printf("FAILED: the call has returned\n");
    }
    /* The other rank may have ended the job before. */
    MPI_Finalize();
    return end();
}
