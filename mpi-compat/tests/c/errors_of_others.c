/* If the root of a collective gets an error after another rank has left the call, it is not reported as an error of
   the next call, which is right at both.
   ranks 2
   not on peers: the counts of the first call differ */
#include "check.h"

static int a[64], b[256];

/* The last ranks that MPI lets return an error: of the root alone, which is rank 1. */
static int wrong(int form, MPI_Comm comm) {
    MPI_Request request;
    int odd = rank_of(comm) == 0, code;
    switch (form) {
    case 0: return MPI_Gather(a, odd ? 2 : 1, MPI_INT, b, 1, MPI_INT, 1, comm);
    case 1:
        code = MPI_Igather(a, odd ? 2 : 1, MPI_INT, b, 1, MPI_INT, 1, comm, &request);
        return code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    case 2: return MPI_Reduce(a, b, odd ? 20 : 10, MPI_INT, MPI_SUM, 1, comm);
    default: return MPI_Bcast(a, odd ? 20 : 10, MPI_INT, 0, comm);
    }
}

static void right(int next, MPI_Comm comm) {
    MPI_Comm other;
    switch (next) {
    case 0: OK(MPI_Allreduce(a, b, 1, MPI_INT, MPI_SUM, comm)); break;
    case 1: OK(MPI_Barrier(comm)); break;
    case 2:
        OK(MPI_Comm_dup(comm, &other));
        OK(MPI_Comm_free(&other));
        break;
    case 3: OK(MPI_Bcast(a, 1, MPI_INT, 1, comm)); break;
    case 4:
        OK(MPI_Comm_split(comm, 0, 0, &other));
        OK(MPI_Comm_free(&other));
        break;
    default: OK(MPI_Allreduce(a, b, 40, MPI_INT, MPI_SUM, comm));
    }
}

int main(void) {
    MPI_Comm comm;
    start();
    for (int form = 0; form < 4; form++)
        for (int next = 0; next < 6; next++)
            for (int before = 0; before < 8; before += 7) {
                OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
                for (int i = 0; i < before; i++) OK(MPI_Allreduce(a, b, 1, MPI_INT, MPI_SUM, comm));
                int code = wrong(form, comm);
                if (rank_of(comm) == 1) CHECK(code != MPI_SUCCESS);
                right(next, comm);
                OK(MPI_Barrier(comm));
                OK(MPI_Barrier(MPI_COMM_WORLD));
                OK(MPI_Comm_free(&comm));
            }
    return finish();
}
