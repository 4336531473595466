/* Calls on communicators of two consecutive sessions, without MPI_Init: all ranks give the same root.
   ranks 3
   not on peers: MPICH 5.0.2 at times hangs in the second session, also without this library
   says VERIFY MPI_BCAST(2): root 1 inconsistent with root 0 of 0 */
#include "session.h"

int main(void) {
    for (int round = 0; round < 2; round++) {
        MPI_Session session;
        MPI_Datatype pair;
        MPI_Comm comm = open_session(&session);
        int data[4] = {0};
        MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
        MPI_Type_commit(&pair);
        if (rank == 0) data[2] = 7 + round;
        MPI_Bcast(data, rank == 0 ? 1 : 2, rank == 0 ? pair : MPI_INT, round == 1 ? WRONG_AT(2, 1, 0) : 0, comm);
        if (!(IS_WRONG && round == 1) && rank > 0 && data[1] != 7 + round) printf("FAILED rank %d: %d\n", rank, data[1]);
        MPI_Type_free(&pair);
        close_session(&session, &comm);
    }
    return ended(IS_WRONG);
}
