/* Ranks are included in the order of the list, and excluded without changing the order of the others.
   ranks 4 */
#include "check.h"

int main(void) {
    MPI_Group world, some, others;
    int all[4] = {0, 1, 2, 3}, to[4], n, result;
    start();
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 4, (int[]){2, 0, 3, 1}, &some));
    OK(MPI_Group_translate_ranks(some, 4, all, world, to));
    printf("included: %d %d %d %d\n", to[0], to[1], to[2], to[3]);
    OK(MPI_Group_compare(some, world, &result));
    CHECK(result == MPI_SIMILAR);
    OK(MPI_Group_excl(some, 2, (int[]){1, 3}, &others));
    OK(MPI_Group_size(others, &n));
    CHECK(n == 2);
    OK(MPI_Group_translate_ranks(others, 2, all, world, to));
    printf("left: %d %d\n", to[0], to[1]);
    OK(MPI_Group_incl(world, 0, NULL, &others));
    CHECK(others == MPI_GROUP_EMPTY);
    OK(MPI_Group_excl(world, 0, NULL, &others));
    OK(MPI_Group_compare(others, world, &result));
    CHECK(result == MPI_IDENT);
    return finish();
}
