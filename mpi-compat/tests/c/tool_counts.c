/* The tool interface can be initialized and finalized any number of times, before MPI_Init and concurrently with MPI.
   not on peers: MPICH answers after the end too */
#include "check.h"

int main(void) {
    int provided, number = -1;
    CHECK_T(MPI_T_ERR_NOT_INITIALIZED, MPI_T_cvar_get_num(&number));
    CHECK_T(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK_T(MPI_SUCCESS, MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK_T(MPI_SUCCESS, MPI_T_finalize());
    CHECK_T(MPI_SUCCESS, MPI_T_cvar_get_num(&number));
    CHECK(number >= 0);
    start();
    CHECK_T(MPI_SUCCESS, MPI_T_finalize());
    CHECK_T(MPI_T_ERR_NOT_INITIALIZED, MPI_T_cvar_get_num(&number));
    return finish();
}
