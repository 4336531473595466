/* Bytes match elements of the same size, and types may be freed as soon as the call has returned.
   ranks 2 */
#include "rma.h"

int main(void) {
    int *base, got[4], values[4];
    MPI_Win win;
    start();
    int me = rank_of(MPI_COMM_WORLD), peer = 1 - me;
    OK(MPI_Win_allocate(32 * sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    memset(base, 0, 32 * sizeof(int));
    for (int i = 0; i < 4; i++) values[i] = 10 * me + i;
    OK(MPI_Win_fence(0, win));
    MPI_Datatype type;
    OK(MPI_Type_vector(4, 1, 3, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Put(values, 16, MPI_BYTE, peer, 8, 1, type, win));
    OK(MPI_Type_free(&type));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < 4; i++) CHECK(base[2 + 3 * i] == 10 * peer + i);
    OK(MPI_Type_vector(4, 4, 12, MPI_BYTE, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Get(got, 4, MPI_INT, peer, 8, 1, type, win));
    OK(MPI_Type_free(&type));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < 4; i++) CHECK(got[i] == 10 * me + i);
    end_window(&win);
    return finish();
}
