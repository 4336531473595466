/* A rank refuses a call that a group makes, and then makes a collective call of the communicator: the others of the group
   do not wait for it, and the communicator can be used. If it repeats the call, the call succeeds.
   ranks 3
   not on peers: the others wait for ever */
#include "check.h"

/* The member with the lowest rank collects the words of the others. */
enum { LEADER = 0, MEMBER = 1 };

static MPI_Group all;

static void refused(int rank, MPI_Comm *made, int tag) {
    if (rank_of(MPI_COMM_WORLD) == rank) {
        CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, all, tag, made) != MPI_SUCCESS);
    } else {
        MPI_Comm other = MPI_COMM_WORLD;
        int code = MPI_Comm_create_group(MPI_COMM_WORLD, all, 7, &other);
        CHECK(code != MPI_SUCCESS && other == MPI_COMM_NULL);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

static void repeated(int rank) {
    MPI_Comm made;
    int sum = 0, one = 1;
    if (rank_of(MPI_COMM_WORLD) == rank) CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, all, -1, &made) != MPI_SUCCESS);
    OK(MPI_Comm_create_group(MPI_COMM_WORLD, all, 7, &made));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, made));
    CHECK(sum == 3);
    OK(MPI_Comm_free(&made));
}

/* Rank 0 leads one group, ranks 1 and 2 are the other. */
static void between_two(void) {
    MPI_Comm local, made = MPI_COMM_NULL;
    int rank = rank_of(MPI_COMM_WORLD), code;
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank == 0, 0, &local));
    if (rank == 0) CHECK(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 1, -1, &made) != MPI_SUCCESS);
    else {
        MPI_Comm_set_errhandler(local, MPI_ERRORS_RETURN);
        code = MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 0, 7, &made);
        CHECK(code != MPI_SUCCESS && made == MPI_COMM_NULL);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, rank == 0, 8, &made));
    OK(MPI_Comm_free(&made));
    OK(MPI_Comm_free(&local));
}

int main(void) {
    MPI_Comm made;
    start();
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    repeated(MEMBER);
    refused(MEMBER, &made, -1);
    refused(LEADER, &made, -1);
    refused(MEMBER, NULL, 7);
    repeated(LEADER);
    between_two();
    OK(MPI_Group_free(&all));
    return finish();
}
