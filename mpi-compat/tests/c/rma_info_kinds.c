/* Windows say which kinds of memory there may be: mpi and system.
   not on peers: MPICH says more */
#include "rma.h"

static int value_of(const char *key, char *text) {
    MPI_Info info;
    int len = MPI_MAX_INFO_VAL, flag;
    OK(MPI_Win_get_info(win, &info));
    OK(MPI_Info_get_string(info, key, &len, text, &flag));
    OK(MPI_Info_free(&info));
    return flag;
}

int main(void) {
    char text[MPI_MAX_INFO_VAL];
    begin(1);
    CHECK(value_of("mpi_memory_alloc_kinds", text) && strcmp(text, "mpi,system") == 0);
    return done();
}
