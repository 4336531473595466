/* Wrong buffers of a call that is repeated are refused as in a first call.
   ranks 1
   not on peers: MPICH ends where buffers overlap */
#include "check.h"

int main(void) {
    start();
    MPI_Comm alone = MPI_COMM_SELF;
    int a[2] = {1, 2}, b[2] = {0};
    for (int i = 0; i < 3; i++) OK(MPI_Allreduce(a, b, 2, MPI_INT, MPI_SUM, alone));
    FAILS(MPI_ERR_BUFFER, MPI_Allreduce(a, a, 2, MPI_INT, MPI_SUM, alone));
    FAILS(MPI_ERR_BUFFER, MPI_Allreduce(b, b + 1, 2, MPI_INT, MPI_SUM, alone));
    FAILS(MPI_ERR_BUFFER, MPI_Allreduce(NULL, b, 2, MPI_INT, MPI_SUM, alone));
    FAILS(MPI_ERR_BUFFER, MPI_Allreduce(a, MPI_IN_PLACE, 2, MPI_INT, MPI_SUM, alone));
    OK(MPI_Allreduce(a, b, 2, MPI_INT, MPI_SUM, alone));
    CHECK(b[0] == 1 && b[1] == 2);
    OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, alone));
    OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, alone));
    FAILS(MPI_ERR_ROOT, MPI_Bcast(a, 2, MPI_INT, 1, alone));
    OK(MPI_Bcast(a, 2, MPI_INT, 0, alone));
    FAILS(MPI_ERR_BUFFER, MPI_Bcast(NULL, 2, MPI_INT, 0, alone));
    return finish();
}
