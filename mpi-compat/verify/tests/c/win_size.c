/* As much as the origin gives the target takes.
   ranks 2
   says VERIFY MPI_PUT(0): originsize=16 > targetsize(1)=8 */
#include "check.h"

int main(void) {
    MPI_Win win;
    MPI_Datatype mixed;
    double memory[4] = {0}, in[8] = {0};
    int peer;
    start();
    peer = 1 - rank;
    MPI_Type_create_struct(2, (int[]){1, IS_WRONG ? 1 : 0}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_DOUBLE, MPI_LONG}, &mixed);
    MPI_Type_commit(&mixed);
    MPI_Win_create(memory, 32, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    handle_win(win);
    MPI_Win_fence(0, win);
    if (rank == 0) {
        MPI_Put(in, WRONG_AT(0, 2, 1), MPI_DOUBLE, peer, 0, 1, MPI_DOUBLE, win);
    }
    (void)peer, (void)in;
    MPI_Win_fence(0, win);
    if (rank == 1) handled += IS_WRONG;
    MPI_Win_free(&win);
    MPI_Type_free(&mixed);
    return finish();
}
