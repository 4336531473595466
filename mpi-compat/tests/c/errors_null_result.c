/* If a rank passes a null pointer for the result of a collective constructor, or another wrong argument, it gets an
   error, and so do the other ranks.
   ranks 2 3
   not on peers: the other ranks wait forever */
#include "check.h"

static int make(int which, int wrong) {
    MPI_Comm comm, *new = wrong ? NULL : &comm;
    MPI_Win window, *win = wrong ? NULL : &window;
    MPI_Request request, *started = wrong ? NULL : &request;
    MPI_Group group;
    int dims[1] = {1}, no[1] = {0}, word = 0, code;
    void *base;
    switch (which) {
    case 0: return MPI_Comm_dup(MPI_COMM_WORLD, new);
    case 1: return MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, new);
    case 2: return MPI_Comm_split(MPI_COMM_WORLD, 0, 0, new);
    case 3: return MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, new);
    case 4:
        MPI_Comm_group(MPI_COMM_WORLD, &group);
        code = MPI_Comm_create(MPI_COMM_WORLD, group, new);
        MPI_Group_free(&group);
        return code;
    case 5: return MPI_Cart_create(MPI_COMM_WORLD, 1, dims, no, 0, new);
    case 6: return MPI_Graph_create(MPI_COMM_WORLD, 1, no, no, 0, new);
    case 7: return MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, no, no, 0, no, no, MPI_INFO_NULL, 0, new);
    case 8: return MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, win);
    case 9: return MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, wrong ? NULL : &base, &window);
    case 10: return MPI_Win_create(&word, 4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, win);
    case 11: return MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, win);
    case 12: return MPI_Win_allocate(64, wrong ? -1 : 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    case 13: return MPI_Comm_split(MPI_COMM_WORLD, wrong ? -9 : 0, 0, &comm);
    case 14: return MPI_Bcast(wrong ? NULL : &word, 1, MPI_INT, 0, MPI_COMM_WORLD);
    case 15:
        code = MPI_Ibarrier(MPI_COMM_WORLD, started);
        return code ? code : MPI_Wait(started, MPI_STATUS_IGNORE);
    default:
        code = MPI_Iallreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, started);
        return code ? code : MPI_Wait(started, MPI_STATUS_IGNORE);
    }
}

int main(void) {
    start();
    for (int which = 0; which < 17; which++) {
        int code = make(which, rank_of(MPI_COMM_WORLD) == 0);
        if (code == MPI_SUCCESS) printf("FAILED %d: no error\n", which);
        failures += code == MPI_SUCCESS;
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    return finish();
}
