/* Except in an allgather, a block may be received into longer memory, the rest of which is not written. The standard
   forbids it, but programs do so.
   ranks 2 3 */
#include "check.h"

enum { SENT = 40, PLACE = 56, MANY = 3 };

static int in[MANY * PLACE], out[MANY * PLACE];

/* Of each place that is received into, the first words are those of the block, and the others, up to `kept`, are as
   before. */
static void check(int line, int size, int scattered, int kept) {
    int rank = rank_of(MPI_COMM_WORLD);
    for (int from = 0; from < (scattered ? 1 : size); from++)
        for (int i = 0; i < kept; i++) {
            int value = i < SENT ? 1000 * from + (scattered ? PLACE * rank : 0) + i : -1;
            if (out[from * PLACE + i] != value && failures++ < 9)
                printf("FAILED line %d: word %d from %d is %d\n", line, i, from, out[from * PLACE + i]);
        }
}

static void reset(int rank) {
    for (int i = 0; i < MANY * PLACE; i++) in[i] = 1000 * rank + i, out[i] = -1;
}

int main(void) {
    int rank, size, sends[MANY], places[MANY], bytes[MANY], starts[MANY], recvs[MANY];
    MPI_Datatype types[MANY];
    MPI_Request request;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < MANY; i++) {
        sends[i] = SENT, recvs[i] = PLACE, places[i] = i * PLACE, bytes[i] = 4 * places[i], starts[i] = 0;
        types[i] = MPI_INT;
    }
    for (int root = 0; root < size; root++) {
        reset(rank);
        OK(MPI_Gatherv(in, SENT, MPI_INT, out, recvs, places, MPI_INT, root, MPI_COMM_WORLD));
        if (rank == root) check(__LINE__, size, 0, PLACE);
        reset(rank);
        OK(MPI_Igatherv(in, SENT, MPI_INT, out, recvs, places, MPI_INT, root, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        if (rank == root) check(__LINE__, size, 0, PLACE);
    }
    reset(rank);
    OK(MPI_Scatterv(in, sends, places, MPI_INT, out, PLACE, MPI_INT, 0, MPI_COMM_WORLD));
    check(__LINE__, size, 1, PLACE);
    reset(rank);
    OK(MPI_Alltoallv(in, sends, starts, MPI_INT, out, recvs, places, MPI_INT, MPI_COMM_WORLD));
    check(__LINE__, size, 0, PLACE);
    reset(rank);
    OK(MPI_Alltoallw(in, sends, starts, types, out, recvs, bytes, types, MPI_COMM_WORLD));
    check(__LINE__, size, 0, PLACE);
    reset(rank);
    OK(MPI_Allgather(in, SENT, MPI_INT, out, PLACE, MPI_INT, MPI_COMM_WORLD));
    check(__LINE__, size, 0, SENT);
    reset(rank);
    OK(MPI_Allgatherv(in, SENT, MPI_INT, out, recvs, places, MPI_INT, MPI_COMM_WORLD));
    check(__LINE__, size, 0, SENT);
    return finish();
}
