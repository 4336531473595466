/* Puts, gets and accumulates on a shared window are consistent with its loads and stores.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int *memory, value, got = -1, one = 1;
    MPI_Comm node = begin_sharing();
    OK(MPI_Win_allocate_shared(2 * sizeof(int), sizeof(int), MPI_INFO_NULL, node, &memory, &win));
    memory[0] = me;
    memory[1] = 0;
    FENCE();
    GET(&got, 1, right(), 0);
    for (int rank = 0; rank < size; rank++) ADD(&one, 1, rank, 1);
    FENCE();
    CHECK(got == right() && memory[1] == size);
    value = 40 + me;
    PUT(&value, 1, right(), 0);
    FENCE();
    CHECK(memory[0] == 40 + left());
    OK(MPI_Win_free(&win));
    return finish();
}
