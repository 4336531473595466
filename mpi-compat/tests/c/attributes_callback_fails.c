/* A callback that fails makes the call fail: nothing is duplicated or deleted. */
#include "check.h"

static int allowed;

static int copy_fails(MPI_Datatype type, int keyval, void *extra, void *in, void *out, int *flag) {
    (void)type, (void)keyval, (void)extra, (void)in, (void)out, (void)flag;
    return MPI_ERR_OTHER;
}

static int delete_may_fail(MPI_Datatype type, int keyval, void *value, void *extra) {
    (void)type, (void)keyval, (void)value, (void)extra;
    return allowed ? MPI_SUCCESS : MPI_ERR_INTERN;
}

int main(void) {
    int key, flag, *value, data = 3;
    MPI_Datatype type, copy;
    start();
    OK(MPI_Type_create_keyval(copy_fails, delete_may_fail, &key, NULL));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, key, &data));
    CHECK(MPI_Type_dup(type, &copy) != MPI_SUCCESS);
    CHECK(MPI_Type_delete_attr(type, key) != MPI_SUCCESS);
    OK(MPI_Type_get_attr(type, key, &value, &flag));
    CHECK(flag && value == &data);
    allowed = 1;
    OK(MPI_Type_free(&type));
    CHECK(type == MPI_DATATYPE_NULL);
    return finish();
}
