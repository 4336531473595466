/* An attribute of a communicator has the value that was set; another value first deletes the old one. */
#include "check.h"

static int deleted[8], n_deleted;

static int delete_attribute(MPI_Comm comm, int keyval, void *value, void *extra) {
    CHECK(comm == MPI_COMM_WORLD && keyval != MPI_KEYVAL_INVALID && extra == &n_deleted);
    deleted[n_deleted++] = *(int *)value;
    return MPI_SUCCESS;
}

int main(void) {
    int key, flag, first = 1, second = 2, *value;
    start();
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, delete_attribute, &key, &n_deleted));
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, &first));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, &second));
    CHECK(n_deleted == 1 && deleted[0] == 1);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag));
    CHECK(flag && value == &second);
    OK(MPI_Comm_get_attr(MPI_COMM_SELF, key, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    CHECK(n_deleted == 2 && deleted[1] == 2);
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_free_keyval(&key));
    CHECK(key == MPI_KEYVAL_INVALID);
    return finish();
}
