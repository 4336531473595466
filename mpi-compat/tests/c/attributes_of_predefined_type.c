/* Predefined types have attributes too, and the names of MPI-1 for those of communicators work. */
#include "check.h"

int main(void) {
    int key, old, flag, data = 1, *value;
    start();
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Type_set_attr(MPI_DOUBLE, key, &data));
    OK(MPI_Type_get_attr(MPI_DOUBLE, key, &value, &flag));
    CHECK(flag && value == &data);
    OK(MPI_Type_delete_attr(MPI_DOUBLE, key));
    OK(MPI_Type_free_keyval(&key));

    OK(MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, &old, NULL));
    OK(MPI_Attr_put(MPI_COMM_SELF, old, &data));
    OK(MPI_Attr_get(MPI_COMM_SELF, old, &value, &flag));
    CHECK(flag && value == &data);
    OK(MPI_Attr_delete(MPI_COMM_SELF, old));
    OK(MPI_Keyval_free(&old));
    return finish();
}
