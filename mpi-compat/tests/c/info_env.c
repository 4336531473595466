/* MPI_INFO_ENV can be read, but not freed. */
#include "check.h"

int main(void) {
    MPI_Info info = MPI_INFO_ENV, copy;
    int n = -1;
    start();
    OK(MPI_Info_get_nkeys(info, &n));
    CHECK(n >= 0);
    OK(MPI_Info_dup(info, &copy));
    OK(MPI_Info_free(&copy));
    OK(MPI_Info_create_env(0, NULL, &copy));
    CHECK(copy != MPI_INFO_NULL);
    OK(MPI_Info_free(&copy));
    CHECK(MPI_Info_free(&info) != MPI_SUCCESS);
    return finish();
}
