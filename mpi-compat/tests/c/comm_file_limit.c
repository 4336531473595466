/* Where the process has a limit on the length of files, what would make a longer one is an error, or goes without: the process is not
   ended by SIGXFSZ.
   ranks 2 3
   not on peers: they are ended */
#include "check.h"
#include <sys/resource.h>

static void limit_files(rlim_t most) {
    struct rlimit limits;
    CHECK(getrlimit(RLIMIT_FSIZE, &limits) == 0);
    limits.rlim_cur = most;
    CHECK(setrlimit(RLIMIT_FSIZE, &limits) == 0);
}

int main(void) {
    start();
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    MPI_Comm comm[50];
    int rank = rank_of(MPI_COMM_WORLD), size, sum;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    limit_files(1000);
    /* More than the memory that is there already has room for. */
    for (int i = 0; i < COUNT(comm); i++) {
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm[i]));
        for (int k = 0; k < 10; k++) {
            OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm[i]));
            CHECK(sum == size * (size - 1) / 2);
        }
    }
    char *base, text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Win win;
    MPI_Comm_set_errhandler(comm[0], MPI_ERRORS_RETURN);
    int code = MPI_Win_allocate(4 << 20, 1, MPI_INFO_NULL, comm[0], &base, &win);
    limit_files(before.rlim_cur);
    if (code == MPI_SUCCESS) {
        OK(MPI_Win_free(&win)); /* on memory that needs no file */
    } else {
        MPI_Error_string(code, text, &length);
        if (!strstr(text, "ulimit -f")) printf("FAILED: %s\n", text);
    }
    for (int i = 0; i < COUNT(comm); i++) OK(MPI_Comm_free(&comm[i]));
    return finish();
}
