/* The hints on accumulates are returned, may be changed, and unknown ones are ignored.
   ranks 1 2
   not on peers: MPICH says other defaults */
#include "rma.h"

int main(void) {
    MPI_Info info;
    begin(1);
    CHECK(has_hint(win, "accumulate_ordering", "rar,raw,war,waw"));
    CHECK(has_hint(win, "accumulate_ops", "same_op_no_op"));
    info = info_with("accumulate_ordering", "rar,waw");
    OK(MPI_Info_set(info, "accumulate_ops", "same_op"));
    OK(MPI_Info_set(info, "mpi_accumulate_granularity", "64"));
    OK(MPI_Win_set_info(win, info));
    OK(MPI_Info_free(&info));
    CHECK(has_hint(win, "accumulate_ordering", "rar,waw"));
    CHECK(has_hint(win, "accumulate_ops", "same_op"));
    CHECK(has_hint(win, "mpi_accumulate_granularity", "64"));
    info = info_with("accumulate_ops", "any_op_at_all");
    OK(MPI_Info_set(info, "no_such_hint", "1"));
    OK(MPI_Win_set_info(win, info));
    OK(MPI_Info_free(&info));
    CHECK(has_hint(win, "accumulate_ops", "same_op"));
    CHECK(!has_hint(win, "no_such_hint", NULL));
    return done();
}
