/* Errors: ranks out of range, negative counts, strides of 0, null groups.
   ranks 2 */
#include "check.h"

int main(void) {
    MPI_Group world, some, none = MPI_GROUP_NULL;
    int n;
    start();
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    FAILS(MPI_ERR_GROUP, MPI_Group_size(MPI_GROUP_NULL, &n));
    FAILS(MPI_ERR_GROUP, MPI_Group_free(&none));
    FAILS(MPI_ERR_RANK, MPI_Group_incl(world, 1, (int[]){2}, &some));
    FAILS(MPI_ERR_RANK, MPI_Group_incl(world, 1, (int[]){-1}, &some));
    FAILS(MPI_ERR_RANK, MPI_Group_excl(world, 1, (int[]){5}, &some));
    FAILS(MPI_ERR_ARG, MPI_Group_incl(world, -1, (int[]){0}, &some));
    int zero[1][3] = {{0, 1, 0}};
    FAILS(MPI_ERR_ARG, MPI_Group_range_incl(world, 1, zero, &some));
    FAILS(MPI_ERR_RANK, MPI_Group_translate_ranks(world, 1, (int[]){7}, world, &n));
    OK(MPI_Group_free(&world));
    return finish();
}
