/* A displacement in a dynamic window is any address inside attached memory.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { LEN = 100 };
    int *memory = malloc(LEN * sizeof(int)), got[10];
    MPI_Aint at, there;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < LEN; i++) memory[i] = 1000 * me + i;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_attach(win, memory, LEN * sizeof(int)));
    OK(MPI_Get_address(&memory[37], &at));
    OK(MPI_Sendrecv(&at, 1, MPI_AINT, left(), 0, &there, 1, MPI_AINT, right(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win));
    GET(got, 10, right(), there);
    OK(MPI_Win_unlock(right(), win));
    for (int i = 0; i < 10; i++) CHECK(got[i] == 1000 * right() + 37 + i);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_detach(win, memory));
    OK(MPI_Win_free(&win));
    free(memory);
    return finish();
}
