/* Arguments of windows: empty memory that is attached, operations without elements, a hint that cannot change after
   the memory was allocated, and a null pointer at one rank.
   ranks 2
   not on peers: they check less */
#include "check.h"

int main(void) {
    int *base, value = 0, flag;
    char hint[8];
    MPI_Win win;
    MPI_Info info;
    MPI_Datatype vector;
    start();
    int me = rank_of(MPI_COMM_WORLD);

    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_attach(win, &value, 0));
    OK(MPI_Win_detach(win, &value));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, &value));
    OK(MPI_Win_attach(win, &value, 0));
    OK(MPI_Win_attach(win, &value, sizeof value));
    OK(MPI_Win_detach(win, &value));
    OK(MPI_Win_detach(win, &value));
    FAILS(MPI_ERR_RMA_ATTACH, MPI_Win_detach(win, &value));
    OK(MPI_Win_free(&win));

    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &vector));
    OK(MPI_Type_commit(&vector));
    OK(MPI_Win_allocate(sizeof value, sizeof value, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&value, 0, MPI_INT, 1, 1000, 0, MPI_INT, win));
    OK(MPI_Put(&value, 0, vector, 1, 1000, 0, vector, win));
    OK(MPI_Get(&value, 0, MPI_INT, 1, 1000, 0, MPI_INT, win));
    OK(MPI_Accumulate(&value, 0, MPI_INT, 1, 1000, 0, MPI_INT, MPI_SUM, win));
    OK(MPI_Accumulate(&value, 0, vector, 1, 1000, 0, vector, MPI_SUM, win));
    FAILS(MPI_ERR_RMA_RANGE, MPI_Put(&value, 1, MPI_INT, 1, 1000, 1, MPI_INT, win));
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Put(&value, 0, MPI_INT, 1, 0, 0, MPI_INT, win));

    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
    OK(MPI_Win_set_info(win, info));
    OK(MPI_Info_free(&info));
    OK(MPI_Win_get_info(win, &info));
    int len = sizeof hint;
    OK(MPI_Info_get_string(info, "alloc_shared_noncontig", &len, hint, &flag));
    CHECK(flag && strcmp(hint, "false") == 0);
    OK(MPI_Info_free(&info));
    OK(MPI_Win_free(&win));
    OK(MPI_Type_free(&vector));

    /* A call that is refused at one rank is made again. */
    MPI_Aint bytes = 64;
    if (me == 0) FAILS(MPI_ERR_ARG, MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, NULL, &win));
    OK(MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    OK(MPI_Win_free(&win));
    if (me == 0) FAILS(MPI_ERR_ARG, MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, NULL, &win));
    return finish();
}
