/* An intercommunicator is made while more messages to the other leader are in progress than it can buffer.
   ranks 2 */
#include "check.h"

/* The last ones are empty, so that they fill what the others leave. */
enum { MANY = 1200, EMPTY = 100, LEN = 1024 };

static int len_of(int i) { return i < MANY - EMPTY ? LEN : 0; }

static char out[LEN], in[LEN];
static MPI_Request sends[MANY];

static void flood(int other) {
    for (int i = 0; i < MANY; i++) OK(MPI_Isend(out, len_of(i), MPI_BYTE, other, 0, MPI_COMM_WORLD, &sends[i]));
}

static void ebb(int other) {
    for (int i = 0; i < MANY; i++) OK(MPI_Recv(in, len_of(i), MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE));
}

int main(void) {
    MPI_Comm inter;
    MPI_Group world, groups[2];
    start();
    int me = rank_of(MPI_COMM_WORLD), other = !me;
    flood(other);
    OK(MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, other, 0, &inter));
    ebb(other);
    OK(MPI_Comm_free(&inter));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int i = 0; i < 2; i++) OK(MPI_Group_incl(world, 1, &i, &groups[i]));
    flood(other);
    OK(MPI_Intercomm_create_from_groups(groups[me], 0, groups[other], 0, "flood", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                        &inter));
    ebb(other);
    OK(MPI_Comm_free(&inter));
    for (int i = 0; i < 2; i++) OK(MPI_Group_free(&groups[i]));
    OK(MPI_Group_free(&world));
    return finish();
}
