/* MPI_Pcontrol turns the checks off and on, also for objects that were made while they were off.
   ranks 2
   level 0
   says VERIFY MPI_BCAST(1): root 1 inconsistent with root 0 of 0 */
#include "check.h"

int main(void) {
    int value = 0;
    MPI_Comm comm;
    MPI_Datatype pair;
    start();
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    handle(comm);
    MPI_Pcontrol(1);
    MPI_Barrier(comm);
    MPI_Bcast(&value, 1, MPI_INT, WRONG_AT(1, 1, 0), comm);
    MPI_Bcast((int[2]){0}, 1, pair, 0, comm);
    MPI_Pcontrol(0);
    MPI_Type_free(&pair);
    MPI_Comm_free(&comm);
    /* The next communicator may have the handle of the last one, and has fewer ranks. */
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &comm);
    MPI_Pcontrol(1);
    MPI_Barrier(comm);
    MPI_Pcontrol(0);
    MPI_Comm_free(&comm);
    return finish();
}
