/* A window that all ranks have made with no_locks cannot be locked; one that some have made with it can.
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
    int memory = 0;
    start();
    me = rank_of(MPI_COMM_WORLD);
    info = with("no_locks", "true");
    OK(MPI_Win_create(&memory, sizeof memory, 1, info, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    CHECK(value_of("no_locks", text) && strcmp(text, "true") == 0);
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    FAILS(MPI_ERR_RMA_SYNC, MPI_Win_lock_all(0, win));
    OK(MPI_Win_free(&win));
    OK(MPI_Win_create(&memory, sizeof memory, 1, me == 0 ? info : MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    CHECK(value_of("no_locks", text) && strcmp(text, "false") == 0);
    OK(MPI_Win_lock_all(0, win));
    OK(MPI_Win_unlock_all(win));
    OK(MPI_Win_free(&win));
    OK(MPI_Info_free(&info));
    return finish();
}
