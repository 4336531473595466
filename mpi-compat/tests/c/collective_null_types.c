/* A block without elements may have MPI_DATATYPE_NULL, as in ParallelIO's exchanges.
   ranks 1 2 3
   not on peers: MPICH refuses it where all blocks have one type */
#include "check.h"

#define RANKS 3

static int rank, size, to, from, in[RANKS], out[RANKS], zero[RANKS], nth[RANKS], bytes[RANKS];
static int sends[RANKS], recvs[RANKS];
static MPI_Aint places[RANKS];
static MPI_Datatype sent[RANKS], received[RANKS];

/* Each rank sends a number to the next one, and nothing to all others. */
static void prepare(void) {
    for (int i = 0; i < RANKS; i++) {
        nth[i] = i;
        bytes[i] = i * (int)sizeof(int);
        places[i] = bytes[i];
        in[i] = rank * 10 + i;
        out[i] = -1;
        sends[i] = i == to;
        recvs[i] = i == from;
        sent[i] = i == to ? MPI_INT : MPI_DATATYPE_NULL;
        received[i] = i == from ? MPI_INT : MPI_DATATYPE_NULL;
    }
}

static void check_ring(void) {
    for (int i = 0; i < size; i++) CHECK(out[i] == (i == from ? from * 10 + rank : -1));
    prepare();
}

static void by_type(void) {
    MPI_Request request;
    OK(MPI_Alltoallw(in, sends, bytes, sent, out, recvs, bytes, received, MPI_COMM_WORLD));
    check_ring();
    OK(MPI_Ialltoallw(in, sends, bytes, sent, out, recvs, bytes, received, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check_ring();
    OK(MPI_Alltoallw_init(in, sends, bytes, sent, out, recvs, bytes, received, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
    OK(MPI_Start(&request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Request_free(&request));
    check_ring();
}

static void by_neighbor(void) {
    MPI_Comm all;
    MPI_Request request;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, size, nth, MPI_UNWEIGHTED, size, nth, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &all);
    OK(MPI_Neighbor_alltoallw(in, sends, places, sent, out, recvs, places, received, all));
    check_ring();
    OK(MPI_Ineighbor_alltoallw(in, sends, places, sent, out, recvs, places, received, all, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    check_ring();
    OK(MPI_Neighbor_alltoallv(NULL, zero, nth, MPI_DATATYPE_NULL, NULL, zero, nth, MPI_DATATYPE_NULL, all));
    OK(MPI_Neighbor_allgatherv(NULL, 0, MPI_DATATYPE_NULL, NULL, zero, nth, MPI_DATATYPE_NULL, all));
    OK(MPI_Comm_free(&all));
}

/* One rank has elements, the others have neither elements nor a type. */
static void by_count(void) {
    int one[RANKS] = {1}, n = rank == 0;
    MPI_Datatype type = n ? MPI_INT : MPI_DATATYPE_NULL;
    OK(MPI_Gatherv(in, n, type, out, one, nth, MPI_INT, 0, MPI_COMM_WORLD));
    CHECK(rank > 0 || out[0] == 0);
    OK(MPI_Scatterv(in, one, nth, MPI_INT, out, n, type, 0, MPI_COMM_WORLD));
    OK(MPI_Allgatherv(in, n, type, out, one, nth, MPI_INT, MPI_COMM_WORLD));
    CHECK(out[0] == 0);
    OK(MPI_Gatherv(NULL, 0, MPI_DATATYPE_NULL, NULL, zero, nth, MPI_DATATYPE_NULL, size - 1, MPI_COMM_WORLD));
    OK(MPI_Scatterv(NULL, zero, nth, MPI_DATATYPE_NULL, NULL, 0, MPI_DATATYPE_NULL, size - 1, MPI_COMM_WORLD));
    OK(MPI_Alltoallv(NULL, zero, nth, MPI_DATATYPE_NULL, NULL, zero, nth, MPI_DATATYPE_NULL, MPI_COMM_WORLD));
    OK(MPI_Allgatherv(NULL, 0, MPI_DATATYPE_NULL, NULL, zero, nth, MPI_DATATYPE_NULL, MPI_COMM_WORLD));
    OK(MPI_Bcast(NULL, 0, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD));
}

/* A block with elements has a type. */
static void errors(void) {
    sent[to] = MPI_DATATYPE_NULL;
    FAILS(MPI_ERR_TYPE, MPI_Alltoallw(in, sends, bytes, sent, out, recvs, bytes, received, MPI_COMM_WORLD));
    FAILS(MPI_ERR_TYPE, MPI_Alltoallv(in, sends, nth, MPI_DATATYPE_NULL, out, recvs, nth, MPI_INT, MPI_COMM_WORLD));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

int main(void) {
    start();
    rank = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    to = (rank + 1) % size;
    from = (rank + size - 1) % size;
    prepare();
    by_type();
    by_neighbor();
    by_count();
    errors();
    return finish();
}
