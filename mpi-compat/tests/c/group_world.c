/* The group of MPI_COMM_WORLD has all ranks in order.
   ranks 1 3 */
#include "check.h"

int main(void) {
    MPI_Group world, self;
    int rank, size, n, result;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Comm_group(MPI_COMM_SELF, &self));
    OK(MPI_Group_size(world, &n));
    CHECK(n == size);
    OK(MPI_Group_rank(world, &n));
    CHECK(n == rank);
    OK(MPI_Group_size(self, &n));
    CHECK(n == 1);
    OK(MPI_Group_rank(self, &n));
    CHECK(n == 0);
    OK(MPI_Group_compare(world, self, &result));
    CHECK(result == (size == 1 ? MPI_IDENT : MPI_UNEQUAL));
    OK(MPI_Group_compare(world, world, &result));
    CHECK(result == MPI_IDENT);
    OK(MPI_Group_free(&world));
    CHECK(world == MPI_GROUP_NULL);
    OK(MPI_Group_free(&self));
    return finish();
}
