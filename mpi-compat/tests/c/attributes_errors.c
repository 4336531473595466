/* Invalid keys, and keys of another kind of object, are errors. */
#include "check.h"

int main(void) {
    int comm_key, type_key, win_key, flag, invalid = MPI_KEYVAL_INVALID;
    void *value;
    start();
    OK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &comm_key, NULL));
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_key, NULL));
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &win_key, NULL));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_set_attr(MPI_COMM_WORLD, type_key, NULL));
    FAILS(MPI_ERR_KEYVAL, MPI_Type_set_attr(MPI_INT, comm_key, NULL));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_KEYVAL_INVALID, &value, &flag));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_free_keyval(&invalid));
    FAILS(MPI_ERR_COMM, MPI_Comm_set_attr(MPI_COMM_NULL, comm_key, NULL));
    FAILS(MPI_ERR_TYPE, MPI_Type_get_attr(MPI_DATATYPE_NULL, type_key, &value, &flag));
    OK(MPI_Comm_free_keyval(&comm_key));
    OK(MPI_Type_free_keyval(&type_key));
    OK(MPI_Win_free_keyval(&win_key));
    return finish();
}
