/* A user-defined function with large counts. */
#include "check.h"

static void add(void *in, void *inout, MPI_Count *length, MPI_Datatype *type) {
    CHECK(*type == MPI_INT);
    for (MPI_Count i = 0; i < *length; i++) ((int *)inout)[i] += ((int *)in)[i];
}

int main(void) {
    int a[] = {10, 20}, b[] = {1, 2};
    MPI_Op op;
    start();
    OK(MPI_Op_create_c(add, 1, &op));
    OK(MPI_Reduce_local_c(a, b, 2, MPI_INT, op));
    CHECK(b[0] == 11 && b[1] == 22);
    OK(MPI_Op_free(&op));
    return finish();
}
