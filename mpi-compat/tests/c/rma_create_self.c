/* A window on MPI_COMM_SELF: its rank is its own and only target.
   ranks 1 3 */
#include "rma.h"

int main(void) {
    int memory[2] = {1, 2}, got[2];
    start();
    OK(MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, MPI_COMM_SELF, &win));
    FENCE();
    GET(&got[0], 1, 0, 1);
    GET(&got[1], 1, 0, 0);
    FENCE();
    CHECK(got[0] == 2 && got[1] == 1);
    OK(MPI_Win_free(&win));
    return finish();
}
