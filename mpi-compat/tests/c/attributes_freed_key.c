/* A freed key stays valid in the attributes that hold it. */
#include "check.h"

static int deletes;

static int delete_attribute(MPI_Datatype type, int keyval, void *value, void *extra) {
    (void)type, (void)keyval, (void)extra;
    deletes += (int)(intptr_t)value;
    return MPI_SUCCESS;
}

int main(void) {
    int key;
    MPI_Datatype type;
    start();
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete_attribute, &key, NULL));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, key, (void *)5));
    OK(MPI_Type_free_keyval(&key));
    CHECK(deletes == 0 && key == MPI_KEYVAL_INVALID);
    OK(MPI_Type_free(&type));
    CHECK(deletes == 5);
    return finish();
}
