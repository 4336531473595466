/* If the buffer is too short, it gets the truncated value, and the call returns the required length; length 0 only
   queries. */
#include "check.h"

int main(void) {
    MPI_Info info;
    char value[8] = "abcdefg";
    int flag, length;
    start();
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "key", "longer"));
    length = 0;
    OK(MPI_Info_get_string(info, "key", &length, value, &flag));
    CHECK(flag && length == 7 && strcmp(value, "abcdefg") == 0);
    length = 4;
    OK(MPI_Info_get_string(info, "key", &length, value, &flag));
    CHECK(flag && length == 7 && strcmp(value, "lon") == 0);
    length = 7;
    OK(MPI_Info_get_string(info, "key", &length, value, &flag));
    CHECK(flag && length == 7 && strcmp(value, "longer") == 0);
    OK(MPI_Info_free(&info));
    return finish();
}
