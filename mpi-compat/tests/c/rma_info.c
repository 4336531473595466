/* Hints that the chapter defines come back, and what they promise is kept.
   ranks 2 */
#include "rma.h"

static int has(MPI_Win win, const char *key, const char *value) {
    MPI_Info info;
    char text[MPI_MAX_INFO_VAL];
    int len = sizeof text, flag;
    OK(MPI_Win_get_info(win, &info));
    OK(MPI_Info_get_string(info, key, &len, text, &flag));
    OK(MPI_Info_free(&info));
    return flag && !strcmp(text, value);
}

int main(void) {
    MPI_Info info;
    MPI_Win win;
    int *base;
    start();
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "no_locks", "true"));
    OK(MPI_Info_set(info, "accumulate_ordering", "none"));
    OK(MPI_Info_set(info, "accumulate_ops", "same_op"));
    OK(MPI_Info_set(info, "same_size", "true"));
    OK(MPI_Info_set(info, "same_disp_unit", "true"));
    OK(MPI_Info_set(info, "this_is_no_hint", "true"));
    OK(MPI_Win_allocate(4, 4, info, MPI_COMM_WORLD, &base, &win));
    CHECK(has(win, "no_locks", "true"));
    CHECK(has(win, "accumulate_ordering", "none"));
    CHECK(has(win, "accumulate_ops", "same_op"));
    CHECK(has(win, "same_size", "true"));
    CHECK(has(win, "same_disp_unit", "true"));
    int value = rank_of(MPI_COMM_WORLD) + 1;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 1, MPI_INT, value % 2, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(*base == 3 - value);
    OK(MPI_Info_set(info, "accumulate_ordering", "rar"));
    OK(MPI_Win_set_info(win, info));
    OK(MPI_Info_free(&info));
    end_window(&win);
    OK(MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    CHECK(has(win, "no_locks", "false"));
    OK(MPI_Win_free(&win));
    return finish();
}
