/* Intercommunicators: groups, duplicates, splits, and merges with each side first.
   ranks 2 3 */
#include "check.h"

int main(void) {
    MPI_Comm half, inter, merged, other;
    MPI_Group group, remote;
    int rank, size, n, m, me, flag, result, sum;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int odd = rank % 2, local = (size + 1 - odd) / 2;
    OK(MPI_Comm_split(MPI_COMM_WORLD, odd, 0, &half));
    OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - odd, 12, &inter));
    OK(MPI_Comm_test_inter(inter, &flag));
    CHECK(flag);
    OK(MPI_Comm_size(inter, &n));
    OK(MPI_Comm_rank(inter, &me));
    OK(MPI_Comm_remote_size(inter, &m));
    CHECK(n == local && me == rank / 2 && m == size - local);
    OK(MPI_Comm_group(inter, &group));
    OK(MPI_Comm_remote_group(inter, &remote));
    OK(MPI_Group_size(remote, &m));
    CHECK(m == size - local);
    OK(MPI_Group_rank(group, &m));
    CHECK(m == me);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&remote));

    /* Odd ranks are high, then even ranks, then both groups pass the same value. */
    for (int i = 0; i < 3; i++) {
        int high = i == 0 ? odd : i == 1 ? !odd : 1;
        OK(MPI_Intercomm_merge(inter, high, &merged));
        OK(MPI_Comm_rank(merged, &m));
        OK(MPI_Comm_size(merged, &n));
        CHECK(n == size);
        if (i < 2) CHECK(m == me + (high ? size - local : 0));
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged));
        CHECK(sum == size * (size - 1) / 2);
        OK(MPI_Comm_free(&merged));
    }

    OK(MPI_Comm_dup(inter, &other));
    OK(MPI_Comm_compare(inter, other, &result));
    CHECK(result == MPI_CONGRUENT);
    OK(MPI_Comm_compare(inter, half, &result));
    CHECK(result == MPI_UNEQUAL);
    OK(MPI_Barrier(other));
    OK(MPI_Comm_free(&other));
    /* The first rank of each side, and the others, which one side may not have. */
    OK(MPI_Comm_split(inter, me > 0, 0, &other));
    int rest = size / 2 - 1;
    CHECK((other == MPI_COMM_NULL) == (me > 0 && rest == 0));
    if (other != MPI_COMM_NULL) {
        OK(MPI_Comm_remote_size(other, &m));
        CHECK(m == (me == 0 ? 1 : size - local - 1));
        OK(MPI_Barrier(other));
        OK(MPI_Comm_free(&other));
    }
    int first[] = {0};
    OK(MPI_Comm_group(inter, &group));
    OK(MPI_Group_incl(group, 1, first, &remote));
    OK(MPI_Comm_create(inter, remote, &other));
    CHECK((other == MPI_COMM_NULL) == (me > 0));
    if (me == 0) {
        OK(MPI_Comm_remote_size(other, &m));
        CHECK(m == 1);
        OK(MPI_Comm_free(&other));
    }
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&remote));
    OK(MPI_Comm_free(&inter));
    OK(MPI_Comm_free(&half));
    return finish();
}
