/* Communicators of groups: created by all ranks of a communicator, with several groups at once, and by the group
   alone.
   ranks 1 2 4 5 */
#include "check.h"

int main(void) {
    MPI_Group world, evens, mine;
    MPI_Comm comm;
    int rank, size, n, result, sum;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    int range[1][3] = {{0, size - 1, 2}}, back[1][3] = {{size - 1, 0, -1}};
    range[0][1] = size - 1 - (size - 1) % 2;
    OK(MPI_Group_range_incl(world, 1, range, &evens));
    OK(MPI_Comm_create(MPI_COMM_WORLD, evens, &comm));
    CHECK((comm == MPI_COMM_NULL) == (rank % 2 == 1));
    if (comm != MPI_COMM_NULL) {
        OK(MPI_Comm_rank(comm, &n));
        CHECK(n == rank / 2);
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
        MPI_Comm_size(comm, &n);
        CHECK(sum == n * (n - 1));
        OK(MPI_Comm_free(&comm));
    }
    /* Even and odd ranks, each a group of their own. */
    if (rank % 2 == 0) mine = evens;
    else OK(MPI_Group_difference(world, evens, &mine));
    OK(MPI_Comm_create(MPI_COMM_WORLD, mine, &comm));
    OK(MPI_Comm_size(comm, &n));
    CHECK(n == (size + 1 - rank % 2) / 2);
    OK(MPI_Barrier(comm));
    OK(MPI_Comm_free(&comm));
    /* The same by the group alone: in another order than other ranks call, and again with other groups. */
    for (int i = 0; i < 3; i++) {
        OK(MPI_Comm_create_group(MPI_COMM_WORLD, mine, 5, &comm));
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK(sum == (rank % 2 ? n * n : n * (n - 1)));
        OK(MPI_Comm_free(&comm));
        if (rank < 2) {
            MPI_Group pair;
            int first[1][3] = {{0, size > 1, 1}};
            OK(MPI_Group_range_incl(world, 1, first, &pair));
            OK(MPI_Comm_create_group(MPI_COMM_WORLD, pair, 6, &comm));
            OK(MPI_Barrier(comm));
            OK(MPI_Comm_free(&comm));
            OK(MPI_Group_free(&pair));
        }
    }
    if (rank % 2 == 1) OK(MPI_Group_free(&mine));
    OK(MPI_Group_range_incl(world, 1, back, &mine));
    OK(MPI_Comm_create_group(MPI_COMM_WORLD, mine, 0, &comm));
    OK(MPI_Comm_compare(MPI_COMM_WORLD, comm, &result));
    CHECK(result == (size == 1 ? MPI_CONGRUENT : MPI_SIMILAR));
    OK(MPI_Comm_rank(comm, &n));
    CHECK(n == size - 1 - rank);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_EMPTY, &comm));
    CHECK(comm == MPI_COMM_NULL);
    OK(MPI_Comm_create(MPI_COMM_WORLD, world, &comm));
    OK(MPI_Comm_free(&comm));
    FAILS(MPI_ERR_GROUP, MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_NULL, &comm));
    if (size > 1) FAILS(MPI_ERR_GROUP, MPI_Comm_create(MPI_COMM_SELF, world, &comm));
    FAILS(MPI_ERR_TAG, MPI_Comm_create_group(MPI_COMM_WORLD, world, -1, &comm));
    OK(MPI_Group_free(&mine));
    OK(MPI_Group_free(&evens));
    OK(MPI_Group_free(&world));
    return finish();
}
