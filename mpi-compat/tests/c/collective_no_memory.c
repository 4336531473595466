/* If the root of a reduction has no memory for operands, the call fails there, and the next one works.
   ranks 3
   env FARSIDE_COLL=reduce:flat
   not on peers: they abort */
#include "check.h"
#include <sys/resource.h>

enum { MANY = 2 << 20, ROOT = 1 };

/* The bytes of address space that this process uses. */
static rlim_t in_use(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lu", &pages) != 1) return RLIM_INFINITY;
    fclose(file);
    return (rlim_t)pages * 4096;
}

int main(void) {
    int *in = calloc(MANY, sizeof *in), *out = calloc(MANY, sizeof *out), rank, sum = 0;
    struct rlimit before, limit;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    OK(getrlimit(RLIMIT_AS, &before));
    limit = before;
    limit.rlim_cur = in_use() + (4 << 20);
    if (rank == ROOT) OK(setrlimit(RLIMIT_AS, &limit));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    /* The other ranks only send, and may have completed the call. */
    int code = MPI_Reduce(in, out, MANY, MPI_INT, MPI_SUM, ROOT, MPI_COMM_WORLD);
    CHECK(rank != ROOT || code != MPI_SUCCESS);
    OK(MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, ROOT, MPI_COMM_WORLD));
    CHECK(sum == (rank == ROOT ? 3 : 0));
    OK(setrlimit(RLIMIT_AS, &before));
    OK(MPI_Reduce(in, out, MANY, MPI_INT, MPI_SUM, ROOT, MPI_COMM_WORLD));
    return finish();
}
