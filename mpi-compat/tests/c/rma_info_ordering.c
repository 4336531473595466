/* accumulate_ordering none permits only another order: sums are still right.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    MPI_Info info;
    int *memory, one = 1;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    info = info_with("accumulate_ordering", "none");
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), info, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Info_free(&info));
    *memory = 0;
    FENCE();
    for (int i = 0; i < 50; i++) ADD(&one, 1, 0, 0);
    FENCE();
    CHECK(*memory == (me == 0 ? 50 * size : 0));
    return done();
}
