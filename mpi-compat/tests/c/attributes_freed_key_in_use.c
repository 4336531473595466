/* A freed key can be used while attributes hold it, and not afterwards.
   not on peers: how a key fails that nothing holds any more is not promised */
#include "check.h"

static int deletes, x, y;

static int delete_of_comm(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static int delete_of_type(MPI_Datatype type, int key, void *value, void *extra) {
    (void)type, (void)key, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static int delete_of_win(MPI_Win win, int key, void *value, void *extra) {
    (void)win, (void)key, (void)value, (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

int main(void) {
    int key, freed, again, flag;
    void *value;
    MPI_Comm comm, other;
    MPI_Datatype type;
    MPI_Win win;
    start();

    OK(MPI_Comm_dup(MPI_COMM_SELF, &comm));
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, delete_of_comm, &key, NULL));
    OK(MPI_Comm_set_attr(comm, key, &x));
    freed = again = key;
    OK(MPI_Comm_free_keyval(&key));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_free_keyval(&again));
    OK(MPI_Comm_get_attr(comm, freed, &value, &flag));
    CHECK(flag && value == &x && deletes == 0);
    OK(MPI_Comm_dup(comm, &other));
    OK(MPI_Comm_set_attr(comm, freed, &y));
    CHECK(deletes == 1);
    OK(MPI_Comm_delete_attr(comm, freed));
    CHECK(deletes == 2);
    OK(MPI_Comm_get_attr(comm, freed, &value, &flag));
    CHECK(!flag);
    OK(MPI_Comm_free(&other));
    CHECK(deletes == 3);
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_get_attr(comm, freed, &value, &flag));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_set_attr(comm, freed, &x));
    OK(MPI_Comm_free(&comm));

    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete_of_type, &key, NULL));
    OK(MPI_Type_set_attr(type, key, &x));
    freed = key;
    OK(MPI_Type_free_keyval(&key));
    FAILS(MPI_ERR_KEYVAL, MPI_Comm_get_attr(MPI_COMM_SELF, freed, &value, &flag));
    OK(MPI_Type_get_attr(type, freed, &value, &flag));
    CHECK(flag && value == &x);
    OK(MPI_Type_delete_attr(type, freed));
    CHECK(deletes == 4);
    FAILS(MPI_ERR_KEYVAL, MPI_Type_delete_attr(type, freed));
    OK(MPI_Type_free(&type));

    OK(MPI_Win_create(&x, sizeof x, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, delete_of_win, &key, NULL));
    OK(MPI_Win_set_attr(win, key, &x));
    freed = key;
    OK(MPI_Win_free_keyval(&key));
    OK(MPI_Win_get_attr(win, freed, &value, &flag));
    CHECK(flag && value == &x);
    OK(MPI_Win_delete_attr(win, freed));
    CHECK(deletes == 5);
    FAILS(MPI_ERR_KEYVAL, MPI_Win_get_attr(win, freed, &value, &flag));
    OK(MPI_Win_free(&win));
    return finish();
}
