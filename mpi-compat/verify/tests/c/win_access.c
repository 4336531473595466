/* An access names a rank of the window and bytes in it, and the same amount of data on both sides; an accumulate has
   one basic type.
   ranks 2
   says VERIFY MPI_GET(0): origin_count=-1 < 0
   says VERIFY MPI_PUT(0): target bytes 24 to 40 are not in the window of 1, which has 32 bytes
   says VERIFY MPI_GET(0): target bytes -8 to 0 are not in the window of 1, which has 32 bytes
   says VERIFY MPI_ACCUMULATE(0): target_rank 2 is not a rank from 0 to 1
   says VERIFY MPI_PUT(0): originsize=16 > targetsize(1)=8
   says VERIFY MPI_FETCH_AND_OP(0): target bytes 32 to 40 are not in the window of 1, which has 32 bytes
   says VERIFY MPI_ACCUMULATE(0): target_datatype has more than one basic type */
#define HANDLED (rank == 0 ? 7 : 0)
#include "check.h"

/* Each access is in an epoch of its own. */
#define ALONE(call) ((void)(rank == 0 && (call)), MPI_Win_fence(0, win))

int main(void) {
    MPI_Win win;
    MPI_Datatype mixed;
    double memory[4] = {0}, in[8] = {0};
    start();
    MPI_Type_create_struct(2, (int[]){1, IS_WRONG ? 1 : 0}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_DOUBLE, MPI_LONG}, &mixed);
    MPI_Type_commit(&mixed);
    MPI_Win_create(memory, 32, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    handle_win(win);
    MPI_Win_fence(0, win);
    ALONE(MPI_Get(in, WRONG_AT(0, -1, 1), MPI_DOUBLE, 1, 0, 1, MPI_DOUBLE, win));
    ALONE(MPI_Put(in, 2, MPI_DOUBLE, 1, WRONG_AT(0, 3, 2), 2, MPI_DOUBLE, win));
    ALONE(MPI_Get(in, 1, MPI_DOUBLE, 1, WRONG_AT(0, -1, 0), 1, MPI_DOUBLE, win));
    ALONE(MPI_Accumulate(in, 1, MPI_DOUBLE, WRONG_AT(0, 2, 1), 0, 1, MPI_DOUBLE, MPI_SUM, win));
    ALONE(MPI_Put(in, WRONG_AT(0, 2, 1), MPI_DOUBLE, 1, 0, 1, MPI_DOUBLE, win));
    ALONE(MPI_Fetch_and_op(in, in + 1, MPI_DOUBLE, 1, WRONG_AT(0, 4, 3), MPI_SUM, win));
    ALONE(MPI_Accumulate(in, 1, mixed, 1, 0, 1, mixed, MPI_REPLACE, win));
    MPI_Win_free(&win);
    MPI_Type_free(&mixed);
    return finish();
}
