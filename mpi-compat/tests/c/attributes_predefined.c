/* MPI_COMM_WORLD has the predefined attributes, which cannot be changed.
   ranks 1 2 */
#include "check.h"

static int *value_of(int key, int *flag) {
    int *value = NULL;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, flag));
    return value;
}

int main(void) {
    int flag, size;
    start();
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *tag = value_of(MPI_TAG_UB, &flag);
    CHECK(flag && *tag >= 32767);
    int *global = value_of(MPI_WTIME_IS_GLOBAL, &flag);
    CHECK(flag && (*global == 0 || *global == 1));
    int *universe = value_of(MPI_UNIVERSE_SIZE, &flag);
    CHECK(!flag || *universe >= size);
    int *io = value_of(MPI_IO, &flag);
    CHECK(flag && io != NULL);
    int *number = value_of(MPI_APPNUM, &flag);
    CHECK(flag && *number == 0);
    int *last = value_of(MPI_LASTUSEDCODE, &flag);
    CHECK(flag && *last >= MPI_ERR_LASTCODE);
    int other = 5;
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_set_attr(MPI_COMM_WORLD, MPI_TAG_UB, &other));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_delete_attr(MPI_COMM_WORLD, MPI_TAG_UB));
    int key = MPI_TAG_UB;
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_free_keyval(&key));
    return finish();
}
