/* MPI_NO_OP uses no data of the origin, whose count and type are not checked.
   ranks 2
   says VERIFY MPI_GET_ACCUMULATE(0): resultsize=8 > targetsize(1)=4 */
#include "check.h"

int main(void) {
    MPI_Win win;
    int memory[4], out[2] = {0};
    start();
    for (int i = 0; i < 4; i++) memory[i] = 10 * rank + i;
    MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    handle_win(win);
    MPI_Win_fence(0, win);
    if (rank == 0) {
        MPI_Get_accumulate(NULL, 0, MPI_DATATYPE_NULL, out, 1, MPI_INT, 1, 2, 1, MPI_INT, MPI_NO_OP, win);
        MPI_Get_accumulate(NULL, 0, MPI_DATATYPE_NULL, out + 1, WRONG_AT(0, 2, 1), MPI_INT, 1, 3, 1, MPI_INT, MPI_NO_OP, win);
    }
    MPI_Win_fence(0, win);
    if (rank == 0 && (out[0] != 12 || (!IS_WRONG && out[1] != 13))) printf("FAILED gets %d %d\n", out[0], out[1]);
    if (rank == 1) handled += IS_WRONG;
    MPI_Win_free(&win);
    return finish();
}
