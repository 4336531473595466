/* The promises same_size and same_disp_unit are checked: an error at all ranks if one differs.
   ranks 2 3
   not on peers: MPICH does not look */
#include "rma.h"

static int value_of(const char *key, char *text) {
    MPI_Info info;
    int len = MPI_MAX_INFO_VAL, flag;
    OK(MPI_Win_get_info(win, &info));
    OK(MPI_Info_get_string(info, key, &len, text, &flag));
    OK(MPI_Info_free(&info));
    return flag;
}

static MPI_Info with(const char *key, const char *value) {
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, key, value));
    return info;
}

int main(void) {
    MPI_Info info;
    char text[MPI_MAX_INFO_VAL];
    int memory[4] = {0};
    start();
    me = rank_of(MPI_COMM_WORLD);
    info = with("same_size", "true");
    FAILS(MPI_ERR_SIZE, MPI_Win_create(memory, me == 1 ? 8 : 16, 4, info, MPI_COMM_WORLD, &win));
    OK(MPI_Win_create(memory, 16, me + 1, info, MPI_COMM_WORLD, &win));
    CHECK(value_of("same_size", text) && strcmp(text, "true") == 0);
    CHECK(value_of("same_disp_unit", text) && strcmp(text, "false") == 0);
    OK(MPI_Win_free(&win));
    OK(MPI_Info_free(&info));
    info = with("same_disp_unit", "true");
    FAILS(MPI_ERR_DISP, MPI_Win_create(memory, 16, me == 1 ? 1 : 2, info, MPI_COMM_WORLD, &win));
    OK(MPI_Win_create(memory, 4 * me, 2, info, MPI_COMM_WORLD, &win));
    OK(MPI_Win_free(&win));
    OK(MPI_Info_free(&info));
    return finish();
}
