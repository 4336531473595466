/* A rank gets values that another rank has put at a third one before a fence, though the target takes part in neither.
   ranks 3 4 */
#include "check.h"

enum { LEN = 40000, ROUNDS = 60 };

int main(void) {
    MPI_Win win;
    int rank, *memory, *data = malloc(LEN * sizeof(int));
    start();
    rank = rank_of(MPI_COMM_WORLD);
    OK(MPI_Win_allocate(LEN * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    for (int i = 0; i < LEN; i++) memory[i] = -1;
    OK(MPI_Win_fence(0, win));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LEN; i++) data[i] = rank == 2 ? round : -2;
        if (rank == 2) OK(MPI_Put(data, LEN, MPI_INT, 1, 0, LEN, MPI_INT, win));
        OK(MPI_Win_fence(0, win));
        if (rank == 0) OK(MPI_Get(data, LEN, MPI_INT, 1, 0, LEN, MPI_INT, win));
        OK(MPI_Win_fence(0, win));
        if (rank == 0) {
            int wrong = 0;
            for (int i = 0; i < LEN; i++) wrong += data[i] != round;
            CHECK(wrong == 0);
        }
    }
    OK(MPI_Win_free(&win));
    free(data);
    return finish();
}
