/* A duplicate has the same pairs and is independent of the original. */
#include "check.h"

int main(void) {
    MPI_Info info, copy;
    char value[16];
    int flag, length = sizeof value, n;
    start();
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "a", "1"));
    OK(MPI_Info_set(info, "b", "2"));
    OK(MPI_Info_dup(info, &copy));
    OK(MPI_Info_delete(info, "a"));
    FAILS(MPI_ERR_INFO_NOKEY, MPI_Info_delete(info, "a"));
    OK(MPI_Info_get_nkeys(info, &n));
    CHECK(n == 1);
    OK(MPI_Info_get_nkeys(copy, &n));
    CHECK(n == 2);
    OK(MPI_Info_free(&info));
    OK(MPI_Info_get_string(copy, "a", &length, value, &flag));
    CHECK(flag && strcmp(value, "1") == 0);
    OK(MPI_Info_free(&copy));
    return finish();
}
