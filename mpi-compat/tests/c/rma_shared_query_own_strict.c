/* The results of MPI_Win_shared_query if no other rank's memory is mapped: a rank's own memory, and nothing for
   MPI_PROC_NULL, since no rank shares memory; also for a dynamic window.
   ranks 4
   env FARSIDE_TEST_FAULT=unmapped
   not on peers: they map the memory */
#include "check.h"

int main(void) {
    int unit, *base, *found;
    MPI_Aint bytes;
    MPI_Win win;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    *base = 100 + me;
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_shared_query(win, me, &bytes, &unit, &found));
    CHECK(bytes == sizeof(int) && unit == sizeof(int) && found == base);
    OK(MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &found));
    CHECK(bytes == 0 && found == NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_free(&win));
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    FAILS(MPI_ERR_RMA_FLAVOR, MPI_Win_shared_query(win, 0, &bytes, &unit, &found));
    OK(MPI_Win_free(&win));
    return finish();
}
