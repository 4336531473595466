/* A target datatype that contains elements twice, as Global Arrays' scatter makes it: such an element gets one of its values.
   ranks 1 2 3 */
#include "rma.h"

enum { N = 1000 };

static void put(int length, const int *values, int *places) {
    MPI_Datatype to;
    MPI_Request request;
    OK(MPI_Type_create_indexed_block(length, 1, places, MPI_INT, &to));
    OK(MPI_Type_commit(&to));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, right(), 0, win));
    OK(MPI_Rput(values, length, MPI_INT, right(), 0, 1, to, win, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Win_unlock(right(), win));
    OK(MPI_Type_free(&to));
}

int main(void) {
    static int values[2 * N], places[2 * N];
    int *memory = begin(3 * N), few[3] = {3 * N - 1, 1, 3 * N - 1};
    values[0] = -2;
    put(1, values, few + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
    CHECK(memory[1] == -2);
    OK(MPI_Win_unlock(me, win));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < 2; round++) {
        /* Of three elements two, and each of these twice. */
        for (int i = 0; i < 2 * N; i++) {
            values[i] = 10000 * round + i;
            places[i] = i % N / 2 * 6 + i % 2 * 2;
        }
        put(2 * N, values, places);
        put(3, values, few);
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_Win_lock(MPI_LOCK_SHARED, me, 0, win));
        for (int i = 0; i < N; i++) CHECK(memory[places[i]] == values[i] || memory[places[i]] == values[i + N]);
        CHECK(memory[3 * N - 1] == values[0] || memory[3 * N - 1] == values[2]);
        CHECK(memory[1] == values[1]);
        OK(MPI_Win_unlock(me, win));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (int i = 0; i < N; i++) memory[places[i]] = -1;
    memory[1] = memory[3 * N - 1] = -1;
    for (int i = 0; i < 3 * N; i++) CHECK(memory[i] == -1);
    return done();
}
