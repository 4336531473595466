/* If the buffer is too short, it gets the truncated value.
   not on peers: MPICH fails */
#include "check.h"

int main(void) {
    MPI_Info info;
    char value[16] = "";
    int flag;
    start();
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "key", "longer"));
    OK(MPI_Info_get(info, "key", 3, value, &flag));
    CHECK(flag && strcmp(value, "lon") == 0);
    OK(MPI_Info_free(&info));
    return finish();
}
