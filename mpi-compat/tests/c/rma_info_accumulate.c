/* The hints on accumulates come back, may be changed, and leave what is unknown out.
   ranks 1 2
   not on peers: MPICH says other defaults */
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
    begin(1);
    CHECK(value_of("accumulate_ordering", text) && strcmp(text, "rar,raw,war,waw") == 0);
    CHECK(value_of("accumulate_ops", text) && strcmp(text, "same_op_no_op") == 0);
    info = with("accumulate_ordering", "rar,waw");
    OK(MPI_Info_set(info, "accumulate_ops", "same_op"));
    OK(MPI_Info_set(info, "mpi_accumulate_granularity", "64"));
    OK(MPI_Win_set_info(win, info));
    OK(MPI_Info_free(&info));
    CHECK(value_of("accumulate_ordering", text) && strcmp(text, "rar,waw") == 0);
    CHECK(value_of("accumulate_ops", text) && strcmp(text, "same_op") == 0);
    CHECK(value_of("mpi_accumulate_granularity", text) && strcmp(text, "64") == 0);
    info = with("accumulate_ops", "any_op_at_all");
    OK(MPI_Info_set(info, "no_such_hint", "1"));
    OK(MPI_Win_set_info(win, info));
    OK(MPI_Info_free(&info));
    CHECK(value_of("accumulate_ops", text) && strcmp(text, "same_op") == 0);
    CHECK(!value_of("no_such_hint", text));
    return done();
}
