/* A type whose delete callback fails is not freed.
   not on peers: MPICH frees it */
#include "check.h"

static int allowed;

static int delete_may_fail(MPI_Datatype type, int keyval, void *value, void *extra) {
    (void)type, (void)keyval, (void)value, (void)extra;
    return allowed ? MPI_SUCCESS : MPI_ERR_INTERN;
}

int main(void) {
    int key, data = 3, size;
    MPI_Datatype type;
    start();
    OK(MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, delete_may_fail, &key, NULL));
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_set_attr(type, key, &data));
    FAILS(MPI_ERR_INTERN, MPI_Type_free(&type));
    OK(MPI_Type_size(type, &size));
    allowed = 1;
    OK(MPI_Type_free(&type));
    CHECK(type == MPI_DATATYPE_NULL);
    return finish();
}
