/* The program's attributes are deleted when the window is freed; predefined ones cannot be changed.
   ranks 2 */
#include "check.h"

static int deleted;

static int drop(MPI_Win win, int keyval, void *value, void *extra) {
    (void)keyval;
    deleted += win != MPI_WIN_NULL && value == &deleted && extra == (void *)7;
    return MPI_SUCCESS;
}

int main(void) {
    int key, flag;
    void *value;
    MPI_Win win;
    start();
    OK(MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, drop, &key, (void *)7));
    OK(MPI_Win_get_attr(win, key, &value, &flag));
    CHECK(!flag);
    OK(MPI_Win_set_attr(win, key, &deleted));
    OK(MPI_Win_get_attr(win, key, &value, &flag));
    CHECK(flag && value == &deleted);
    OK(MPI_Win_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    CHECK(deleted == 0);
    OK(MPI_Win_free(&win));
    CHECK(deleted == 1);
    return finish();
}
