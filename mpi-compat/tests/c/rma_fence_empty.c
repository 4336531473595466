/* Any number of fences without operations, with and without asserts.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int value = 1, *memory = begin(1);
    for (int i = 0; i < 30; i++) FENCE();
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, win));
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    PUT(&value, 1, right(), 0);
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    CHECK(*memory == 1);
    return done();
}
