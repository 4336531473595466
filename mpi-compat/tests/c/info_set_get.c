/* Keys have the last value that was set, and keep their order. */
#include "check.h"

int main(void) {
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL], key[MPI_MAX_INFO_KEY];
    int flag, length, n;
    start();
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "color", "red"));
    OK(MPI_Info_set(info, "shape", "round"));
    OK(MPI_Info_set(info, "color", "blue"));
    OK(MPI_Info_get_nkeys(info, &n));
    CHECK(n == 2);
    for (int i = 0; i < n; i++) {
        OK(MPI_Info_get_nthkey(info, i, key));
        printf("key %d: %s\n", i, key);
    }
    length = sizeof value;
    OK(MPI_Info_get_string(info, "color", &length, value, &flag));
    CHECK(flag && strcmp(value, "blue") == 0 && length == 5);
    OK(MPI_Info_get_string(info, "weight", &length, value, &flag));
    CHECK(!flag);
    OK(MPI_Info_free(&info));
    CHECK(info == MPI_INFO_NULL);
    return finish();
}
