/* A collective call that is refused at one rank for its arguments has not been made: when that rank makes it again, it is
   the call for which the others wait, and later calls have data of their own.
   ranks 2 3
   not on peers: they take some of these arguments */
#include "check.h"

enum { BLOCKING, STARTED, PERSISTENT, FORMS };

static int rank, size;

/* Completes a call that has been started or prepared. */
static int completed(int form, int code, MPI_Request *request) {
    if (code != MPI_SUCCESS || form == BLOCKING) return code;
    if (form == PERSISTENT) OK(MPI_Start(request));
    code = MPI_Wait(request, MPI_STATUS_IGNORE);
    if (form == PERSISTENT) OK(MPI_Request_free(request));
    return code;
}

enum { REDUCE, GATHER, BCAST, ALLREDUCE, ALLTOALL, SCAN, SCATTER, REDUCE_SCATTER_BLOCK, KINDS };

/* Makes a call with the value of a round; wrong arguments if `wrong`. Returns its code, and sets the result. */
static int call(int kind, int form, int wrong, int value, int *result) {
    MPI_Request request;
    int in[3] = {value, value, value}, out[3] = {-1, -1, -1}, code;
    void *aliased = wrong ? in : out;
#define FORM(small, Large, ...) \
    code = form == BLOCKING  ? MPI_##Large(__VA_ARGS__) \
           : form == STARTED ? MPI_I##small(__VA_ARGS__, &request) \
                             : MPI_##Large##_init(__VA_ARGS__, MPI_INFO_NULL, &request)
    switch (kind) {
    case REDUCE: FORM(reduce, Reduce, in, rank == 0 || wrong ? aliased : NULL, wrong ? -1 : 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD); break;
    case GATHER: FORM(gather, Gather, in, 1, MPI_INT, out, 1, MPI_INT, wrong ? 77 : 0, MPI_COMM_WORLD); break;
    case BCAST: FORM(bcast, Bcast, rank == 0 ? in : out, wrong ? -1 : 1, MPI_INT, 0, MPI_COMM_WORLD); break;
    case ALLREDUCE: FORM(allreduce, Allreduce, in, aliased, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); break;
    case ALLTOALL: FORM(alltoall, Alltoall, in, 1, wrong ? MPI_DATATYPE_NULL : MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD); break;
    case SCAN: FORM(scan, Scan, in, out, 1, MPI_INT, wrong ? MPI_OP_NULL : MPI_SUM, MPI_COMM_WORLD); break;
    case SCATTER: FORM(scatter, Scatter, in, 1, MPI_INT, wrong ? NULL : out, 1, MPI_INT, 0, MPI_COMM_WORLD); break;
    default: FORM(reduce_scatter_block, Reduce_scatter_block, in, aliased, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    code = completed(form, code, &request);
    *result = kind == BCAST && rank == 0 ? in[0] : kind == GATHER || kind == ALLTOALL ? out[size - 1] : out[0];
    return code;
}

/* The right result of such a call with the values `base + rank`; -1 where there is none. */
static int expected(int kind, int base) {
    int sum = size * base + size * (size - 1) / 2;
    switch (kind) {
    case REDUCE: return rank == 0 ? sum : -1;
    case GATHER: return rank == 0 ? base + size - 1 : -1;
    case BCAST:
    case SCATTER: return base;
    case ALLTOALL: return base + size - 1;
    case SCAN: return (rank + 1) * base + rank * (rank + 1) / 2;
    default: return sum;
    }
}

int main(void) {
    int result;
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    rank = rank_of(MPI_COMM_WORLD);
    for (int kind = 0; kind < KINDS; kind++)
        for (int form = 0; form < FORMS; form++)
            for (int odd = 0; odd < 2; odd++)
                for (int round = 0; round < 2; round++) {
                    int base = 100 * (round + 1) + 10 * kind;
                    if (rank == odd) CHECK(call(kind, form, 1, base + rank, &result) != MPI_SUCCESS);
                    OK(call(kind, form, 0, base + rank, &result));
                    if (result != expected(kind, base)) printf("kind %d, form %d, round %d: %d\n", kind, form, round, result);
                    CHECK(result == expected(kind, base));
                }
    return finish();
}
