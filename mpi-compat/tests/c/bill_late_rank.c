/* The bill of a program with a late rank names the rank that the others have waited for, and the windows and
   communicators.
   ranks 4
   env FARSIDE_BILL=1
   says 3 waited for 2
   not on peers: they keep no bill */
#include "check.h"
#include <unistd.h>

int main(void) {
    int rank, size, value = 1, sum;
    MPI_Win win;
    int *base;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_set_name(win, "halo"));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 2) usleep(300000);
    OK(MPI_Put(&value, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 2) usleep(300000);
    OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == size);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0) usleep(300000);
    if (rank == 0) OK(MPI_Send(&value, 1, MPI_INT, 3, 5, MPI_COMM_WORLD));
    if (rank == 3) OK(MPI_Recv(&value, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Win_free(&win));
    return finish();
}
