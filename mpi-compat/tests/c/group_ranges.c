/* Ranges have a stride, which may be negative, and do not go beyond their last rank.
   ranks 4 */
#include "check.h"

int main(void) {
    MPI_Group world, some;
    int all[4] = {0, 1, 2, 3}, to[4], n;
    start();
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    int ranges[2][3] = {{3, 1, -2}, {0, 2, 2}};
    OK(MPI_Group_range_incl(world, 2, ranges, &some));
    OK(MPI_Group_size(some, &n));
    OK(MPI_Group_translate_ranks(some, n, all, world, to));
    printf("%d: %d %d %d %d\n", n, to[0], to[1], to[2], to[3]);
    int one[1][3] = {{1, 2, 1}};
    OK(MPI_Group_range_excl(world, 1, one, &some));
    OK(MPI_Group_size(some, &n));
    OK(MPI_Group_translate_ranks(some, n, all, world, to));
    printf("%d: %d %d\n", n, to[0], to[1]);
    int empty[1][3] = {{2, 1, 1}};
    FAILS(MPI_ERR_ARG, MPI_Group_range_incl(world, 1, empty, &some));
    return finish();
}
