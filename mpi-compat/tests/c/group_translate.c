/* A rank that is not in the other group becomes MPI_UNDEFINED, and MPI_PROC_NULL stays MPI_PROC_NULL.
   ranks 3 */
#include "check.h"

int main(void) {
    MPI_Group world, some;
    int to[4];
    start();
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 2, (int[]){2, 0}, &some));
    OK(MPI_Group_translate_ranks(world, 4, (int[]){0, 1, 2, MPI_PROC_NULL}, some, to));
    CHECK(to[0] == 1 && to[1] == MPI_UNDEFINED && to[2] == 0 && to[3] == MPI_PROC_NULL);
    OK(MPI_Group_translate_ranks(world, 1, (int[]){0}, MPI_GROUP_EMPTY, to));
    CHECK(to[0] == MPI_UNDEFINED);
    OK(MPI_Group_rank(MPI_GROUP_EMPTY, to));
    CHECK(to[0] == MPI_UNDEFINED);
    return finish();
}
