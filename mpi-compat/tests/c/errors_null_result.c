/* A rank passes a null pointer for the result of a collective constructor, or another wrong argument, and gets an error.
   If it makes the call again, it is the call for which the others wait. If it makes another one, which may have the same
   data as the exchanges of the constructor, all ranks get an error.
   ranks 2 3
   not on peers: the other ranks wait forever */
#include "check.h"

enum { WHICH = 19 };

/* The number of words that each rank gives in the exchange of a constructor. */
static const int words[WHICH] = {2, 2, 5, 5, 5, 5, 5, 5, 3, 3, 3, 3, 3, 5, 1, 1, 1, 1, 5};

static int make(int which, int wrong) {
    MPI_Comm comm = MPI_COMM_NULL, *new = wrong ? NULL : &comm;
    MPI_Win window = MPI_WIN_NULL, *win = wrong ? NULL : &window;
    MPI_Request request, *started = wrong ? NULL : &request;
    MPI_Group group;
    int dims[1] = {1}, no[1] = {0}, word = 0, code;
    void *base;
    switch (which) {
    case 0: code = MPI_Comm_dup(MPI_COMM_WORLD, new); break;
    case 1: code = MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, new); break;
    case 2: code = MPI_Comm_split(MPI_COMM_WORLD, 0, 0, new); break;
    case 3: code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, new); break;
    case 4:
        MPI_Comm_group(MPI_COMM_WORLD, &group);
        code = MPI_Comm_create(MPI_COMM_WORLD, group, new);
        MPI_Group_free(&group);
        break;
    case 5: code = MPI_Cart_create(MPI_COMM_WORLD, 1, dims, no, 0, new); break;
    case 6: code = MPI_Graph_create(MPI_COMM_WORLD, 1, no, no, 0, new); break;
    case 7: code = MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, no, no, 0, no, no, MPI_INFO_NULL, 0, new); break;
    case 8: code = MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, win); break;
    case 9: code = MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, wrong ? NULL : &base, &window); break;
    case 10: code = MPI_Win_create(&word, 4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, win); break;
    case 11: code = MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, win); break;
    case 12: code = MPI_Win_allocate(64, wrong ? -1 : 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window); break;
    case 13: code = MPI_Comm_split(MPI_COMM_WORLD, wrong ? -9 : 0, 0, &comm); break;
    case 14: code = MPI_Bcast(wrong ? NULL : &word, 1, MPI_INT, 0, MPI_COMM_WORLD); break;
    case 15:
        code = MPI_Ibarrier(MPI_COMM_WORLD, started);
        return code ? code : MPI_Wait(started, MPI_STATUS_IGNORE);
    case 16:
        code = MPI_Iallreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, started);
        return code ? code : MPI_Wait(started, MPI_STATUS_IGNORE);
    case 17:
        code = MPI_Dist_graph_create(MPI_COMM_WORLD, 1, wrong ? NULL : no, no, no, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
        break;
    default:
        code = MPI_Comm_idup(MPI_COMM_WORLD, wrong ? NULL : &comm, &request);
        if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (code == MPI_SUCCESS && comm != MPI_COMM_NULL) OK(MPI_Comm_free(&comm));
    if (code == MPI_SUCCESS && window != MPI_WIN_NULL) OK(MPI_Win_free(&window));
    return code;
}

/* Another call with as much data as the exchange of the constructor. */
static int other(int which) {
    int in[8] = {0}, out[32];
    if (which == 17) return MPI_Alltoall(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    return MPI_Allgather(in, words[which], MPI_INT, out, words[which], MPI_INT, MPI_COMM_WORLD);
}

int main(void) {
    start();
    int is_odd = rank_of(MPI_COMM_WORLD) == 0;
    for (int which = 0; which < WHICH; which++) {
        if (is_odd) CHECK(make(which, 1) != MPI_SUCCESS);
        OK(make(which, 0));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        if (is_odd) CHECK(make(which, 1) != MPI_SUCCESS);
        int code = is_odd ? other(which) : make(which, 0);
        if (code == MPI_SUCCESS) printf("FAILED %d: no error\n", which);
        failures += code == MPI_SUCCESS;
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* A rank that is refused and comes to the end. */
    if (is_odd) CHECK(make(0, 1) != MPI_SUCCESS);
    else CHECK(make(0, 0) != MPI_SUCCESS);
    MPI_Finalize();
    return end();
}
