/* Members of a group that give it in different orders get an error.
   ranks 2 3
   not on peers: an erroneous program, whose ranks wait forever */
#include "check.h"

int main(void) {
    MPI_Group all, group;
    MPI_Comm comm;
    int ranks[3], size, me;
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    me = rank_of(MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) ranks[i] = (me + i) % size;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &all));
    OK(MPI_Group_incl(all, size, ranks, &group));
    for (int round = 0; round < 2; round++) {
        FAILS(MPI_ERR_GROUP, MPI_Comm_create_from_group(group, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
        FAILS(MPI_ERR_GROUP, MPI_Comm_create(MPI_COMM_WORLD, group, &comm));
        FAILS(MPI_ERR_GROUP, MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, &comm));
        /* Correct calls succeed afterwards. */
        OK(MPI_Comm_create_group(MPI_COMM_WORLD, all, 5, &comm));
        OK(MPI_Barrier(comm));
        OK(MPI_Comm_free(&comm));
        OK(MPI_Comm_create_from_group(all, "t", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
        OK(MPI_Barrier(comm));
        OK(MPI_Comm_free(&comm));
    }
    MPI_Group_free(&group);
    MPI_Group_free(&all);
    return finish();
}
