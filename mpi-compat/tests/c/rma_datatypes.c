/* Datatypes on both sides: vectors, structs, resized and reversed ones, and bytes against elements of the same size.
   ranks 1 2 3 */
#include "check.h"

enum { N = 12 };

int main(void) {
    int size, *base, column[N], got[N], flag = 0;
    MPI_Win win;
    MPI_Datatype vector, reversed, indexed, shifted;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (me + 1) % size, left = (me + size - 1) % size;
    OK(MPI_Type_vector(N, 1, N, MPI_INT, &vector));
    OK(MPI_Type_commit(&vector));
    OK(MPI_Type_create_hvector(N, 1, -(MPI_Aint)sizeof(int), MPI_INT, &reversed));
    OK(MPI_Type_commit(&reversed));
    int lens[3] = {1, 3, 2}, at[3] = {10, 0, 5};
    OK(MPI_Type_indexed(3, lens, at, MPI_INT, &indexed));
    OK(MPI_Type_commit(&indexed));
    MPI_Aint place = 3 * sizeof(int);
    int one = N - 3;
    OK(MPI_Type_create_hindexed(1, &one, &place, MPI_INT, &shifted));
    OK(MPI_Type_commit(&shifted));
    OK(MPI_Win_allocate(N * N * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    for (int epoch = 0; epoch < 2; epoch++) {
#define OPEN() (epoch ? MPI_Win_lock_all(0, win) : MPI_Win_fence(0, win))
#define CLOSE() (epoch ? (MPI_Win_unlock_all(win) | MPI_Barrier(MPI_COMM_WORLD)) : MPI_Win_fence(0, win))
        /* A column of the neighbour, from a row. */
        memset(base, 0, N * N * sizeof(int));
        for (int i = 0; i < N; i++) column[i] = 100 * me + i;
        MPI_Barrier(MPI_COMM_WORLD);
        OK(OPEN());
        OK(MPI_Put(column, N, MPI_INT, right, 2, 1, vector, win));
        OK(CLOSE());
        for (int i = 0; i < N * N; i++) CHECK(base[i] == (i % N == 2 ? 100 * left + i / N : 0));
        /* And back, in the other order. */
        MPI_Barrier(MPI_COMM_WORLD);
        OK(OPEN());
        OK(MPI_Get(&got[N - 1], 1, reversed, right, 2, 1, vector, win));
        OK(CLOSE());
        for (int i = 0; i < N; i++) CHECK(got[i] == 100 * me + N - 1 - i);
        /* Blocks in any order, on both sides. */
        memset(base, 0, N * N * sizeof(int));
        MPI_Barrier(MPI_COMM_WORLD);
        OK(OPEN());
        OK(MPI_Put(column, 1, indexed, right, N, 1, indexed, win));
        OK(CLOSE());
        for (int i = 0; i < N; i++)
            CHECK(base[N + i] == (i < 3 || i == 5 || i == 6 || i == 10 ? 100 * left + i : 0));
        /* A type with an offset. */
        memset(base, 0, N * N * sizeof(int));
        MPI_Barrier(MPI_COMM_WORLD);
        OK(OPEN());
        OK(MPI_Put(column, 1, shifted, right, 0, 1, shifted, win));
        OK(CLOSE());
        for (int i = 0; i < N; i++) CHECK(base[i] == (i >= 3 ? 100 * left + i : 0));
        /* No elements. */
        MPI_Barrier(MPI_COMM_WORLD);
        OK(OPEN());
        OK(MPI_Put(NULL, 0, MPI_INT, right, 0, 0, MPI_INT, win));
        OK(MPI_Get(got, 0, vector, right, 0, 0, MPI_DOUBLE, win));
        OK(CLOSE());
    }
    (void)flag;
    OK(MPI_Win_free(&win));
    OK(MPI_Type_free(&vector));
    OK(MPI_Type_free(&reversed));
    OK(MPI_Type_free(&indexed));
    OK(MPI_Type_free(&shifted));
    return finish();
}
