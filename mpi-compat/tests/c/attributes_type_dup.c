/* MPI_Type_dup calls the copy callbacks, which may omit or change attributes; MPI_Type_free calls the delete
   callbacks. */
#include "check.h"

static int copies, deletes;

static int copy_changed(MPI_Datatype type, int keyval, void *extra, void *in, void *out, int *flag) {
    (void)type, (void)keyval;
    copies++;
    *(void **)out = (char *)in + *(int *)extra;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Datatype type, int keyval, void *value, void *extra) {
    (void)type, (void)keyval, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

int main(void) {
    static char memory[4];
    int by = 2, changed, kept, left_out, flag;
    char *value;
    MPI_Datatype type, copy;
    start();
    OK(MPI_Type_create_keyval(copy_changed, delete_attribute, &changed, &by));
    OK(MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &kept, NULL));
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete_attribute, &left_out, NULL));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, changed, memory));
    OK(MPI_Type_set_attr(type, kept, memory + 1));
    OK(MPI_Type_set_attr(type, left_out, memory));
    OK(MPI_Type_dup(type, &copy));
    CHECK(copies == 1);
    OK(MPI_Type_get_attr(copy, changed, &value, &flag));
    CHECK(flag && value == memory + 2);
    OK(MPI_Type_get_attr(copy, kept, &value, &flag));
    CHECK(flag && value == memory + 1);
    OK(MPI_Type_get_attr(copy, left_out, &value, &flag));
    CHECK(!flag);
    OK(MPI_Type_free(&copy));
    CHECK(deletes == 1);
    OK(MPI_Type_free(&type));
    CHECK(deletes == 3);
    return finish();
}
