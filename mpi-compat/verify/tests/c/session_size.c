/* Objects made from a session's communicator (a duplicate, a grid, a window): sent sizes must equal received sizes.
   ranks 4
   says VERIFY MPI_NEIGHBOR_ALLTOALLV(0): sendsize[1]=8 > expected recvsize(1)[0]=4
   says VERIFY MPI_PUT(0): originsize=8 > targetsize(1)=4 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm comm = open_session(&session), other, ring;
    MPI_Win win;
    MPI_Request request;
    int in[4], out[4] = {0}, memory[2] = {0}, yes = 1, most = -1, counts[2] = {1, 1}, more[2] = {1, 1}, places[2] = {0, 2};
    for (int i = 0; i < 4; i++) in[i] = rank;
    MPI_Comm_idup(comm, &other, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Iallreduce(&rank, &most, 1, MPI_INT, MPI_MAX, other, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (most != size - 1) printf("FAILED rank %d: %d\n", rank, most);
    MPI_Cart_create(other, 1, &size, &yes, 0, &ring);
    handle(ring);
    more[1] = WRONG_AT(0, 2, 1);
    MPI_Neighbor_alltoallv(in, more, places, MPI_INT, out, counts, places, MPI_INT, ring);
    if (!IS_WRONG && (out[0] != (rank + size - 1) % size || out[2] != (rank + 1) % size)) printf("FAILED rank %d: %d\n", rank, out[0]);
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, ring, &win);
    handle_win(win);
    MPI_Win_fence(0, win);
    MPI_Put(in, WRONG_AT(0, 2, 1), MPI_INT, (rank + 1) % size, 1, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    if (memory[1] != (rank == 1 && IS_WRONG ? 0 : (rank + size - 1) % size)) printf("FAILED rank %d: put %d\n", rank, memory[1]);
    MPI_Win_free(&win);
    MPI_Comm_free(&ring);
    MPI_Comm_free(&other);
    close_session(&session, &comm);
    return ended(IS_WRONG + (IS_WRONG && rank == 0));
}
