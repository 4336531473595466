/* A call that fails does not initialize the tool interface.
   not on peers: they do not check the pointer */
#include "check.h"

int main(void) {
    int provided;
    CHECK_T(MPI_T_ERR_INVALID, MPI_T_init_thread(MPI_THREAD_SINGLE, NULL));
    CHECK_T(MPI_T_ERR_NOT_INITIALIZED, MPI_T_finalize());
    CHECK_T(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK_T(MPI_SUCCESS, MPI_T_finalize());
    return end();
}
