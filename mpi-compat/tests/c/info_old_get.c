/* The calls of MPI-2, whose lengths do not count the null byte. */
#include "check.h"

int main(void) {
    MPI_Info info;
    char value[16] = "";
    int flag, length = -1;
    start();
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "key", "longer"));
    OK(MPI_Info_get_valuelen(info, "key", &length, &flag));
    CHECK(flag && length == 6);
    OK(MPI_Info_get(info, "key", 6, value, &flag));
    CHECK(flag && strcmp(value, "longer") == 0);
    OK(MPI_Info_get(info, "none", 3, value, &flag));
    CHECK(!flag);
    OK(MPI_Info_free(&info));
    return finish();
}
