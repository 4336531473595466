/* The classes of null info objects and strings.
   not on peers: MPICH gives MPI_ERR_ARG */
#include "check.h"

int main(void) {
    MPI_Info info, none = MPI_INFO_NULL;
    int n;
    start();
    OK(MPI_Info_create(&info));
    FAILS(MPI_ERR_INFO, MPI_Info_set(MPI_INFO_NULL, "a", "b"));
    FAILS(MPI_ERR_INFO, MPI_Info_get_nkeys(MPI_INFO_NULL, &n));
    FAILS(MPI_ERR_INFO, MPI_Info_free(&none));
    FAILS(MPI_ERR_INFO_VALUE, MPI_Info_set(info, "a", NULL));
    return finish();
}
