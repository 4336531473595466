/* The hints that the chapter defines are returned, and a program that keeps their guarantees works.
   ranks 2 */
#include "rma.h"

int main(void) {
    MPI_Info info;
    MPI_Win win;
    int *base;
    start();
    info = info_with("no_locks", "true");
    OK(MPI_Info_set(info, "accumulate_ordering", "none"));
    OK(MPI_Info_set(info, "accumulate_ops", "same_op"));
    OK(MPI_Info_set(info, "same_size", "true"));
    OK(MPI_Info_set(info, "same_disp_unit", "true"));
    OK(MPI_Info_set(info, "this_is_no_hint", "true"));
    OK(MPI_Win_allocate(4, 4, info, MPI_COMM_WORLD, &base, &win));
    CHECK(has_hint(win, "no_locks", "true"));
    CHECK(has_hint(win, "accumulate_ordering", "none"));
    CHECK(has_hint(win, "accumulate_ops", "same_op"));
    CHECK(has_hint(win, "same_size", "true"));
    CHECK(has_hint(win, "same_disp_unit", "true"));
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
    CHECK(has_hint(win, "no_locks", "false"));
    OK(MPI_Win_free(&win));
    return finish();
}
