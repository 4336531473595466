/* Layouts on all sides of an accumulate; an element that occurs twice in the target's layout is updated twice.
   ranks 1 2 3 */
#include "check.h"

enum { N = 6 };

int main(void) {
    int size, *base, mine[2 * N], old[3 * N];
    MPI_Win win;
    MPI_Datatype every2, every3, twice;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_vector(N, 1, 2, MPI_INT, &every2);
    MPI_Type_vector(N, 1, 3, MPI_INT, &every3);
    MPI_Type_vector(N, 1, 0, MPI_INT, &twice);
    MPI_Type_commit(&every2);
    MPI_Type_commit(&every3);
    MPI_Type_commit(&twice);
    OK(MPI_Win_allocate(3 * N * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    for (int i = 0; i < 3 * N; i++) base[i] = i;
    for (int i = 0; i < 2 * N; i++) mine[i] = 100 * (i + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock_all(0, win));
    for (int t = 0; t < size; t++) OK(MPI_Accumulate(mine, 1, every2, t, 0, 1, every3, MPI_SUM, win));
    OK(MPI_Win_unlock_all(win));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3 * N; i++) CHECK(base[i] == i + (i % 3 ? 0 : size * 100 * (2 * (i / 3) + 1)));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3 * N; i++) base[i] = old[i] = i + 1000 * me;
    int right = (me + 1) % size, left = (me + size - 1) % size;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Get_accumulate(mine, N, MPI_INT, old, 1, every3, right, 1, 1, every2, MPI_REPLACE, win));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < 3 * N; i++) {
        CHECK(old[i] == (i % 3 ? i + 1000 * me : 2 * (i / 3) + 1 + 1000 * right));
        CHECK(base[i] == (i % 2 && i < 2 * N ? 100 * (i / 2 + 1) : i + 1000 * me));
    }
    (void)left;
    base[0] = 0;
    for (int i = 0; i < N; i++) mine[i] = 1;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Accumulate(mine, N, MPI_INT, right, 0, 1, twice, MPI_SUM, win));
    OK(MPI_Win_fence(0, win));
    CHECK(base[0] == N);
    OK(MPI_Win_free(&win));
    MPI_Type_free(&every2);
    MPI_Type_free(&every3);
    MPI_Type_free(&twice);
    return finish();
}
