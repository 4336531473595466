/* User-defined functions get the length and the type, also a derived one; whether they commute can be queried. */
#include "check.h"

static int calls;
static MPI_Datatype seen;

static void subtract(void *in, void *inout, int *length, MPI_Datatype *type) {
    calls++;
    seen = *type;
    for (int i = 0; i < *length; i++) ((int *)inout)[i] = ((int *)in)[i] - ((int *)inout)[i];
}

struct two { int a, b; };

static void add_two(void *in, void *inout, int *length, MPI_Datatype *type) {
    int size;
    MPI_Type_size(*type, &size);
    CHECK(size == sizeof(struct two));
    for (int i = 0; i < *length; i++) {
        ((struct two *)inout)[i].a += ((struct two *)in)[i].a;
        ((struct two *)inout)[i].b *= ((struct two *)in)[i].b;
    }
}

int main(void) {
    int a[] = {10, 20}, b[] = {1, 2}, commutes = -1;
    struct two c[] = {{1, 2}, {3, 4}}, d[] = {{5, 6}, {7, 8}};
    MPI_Op op, twos;
    MPI_Datatype type;
    start();
    OK(MPI_Op_create(subtract, 0, &op));
    OK(MPI_Op_commutative(op, &commutes));
    CHECK(commutes == 0);
    OK(MPI_Reduce_local(a, b, 2, MPI_INT, op));
    CHECK(calls >= 1 && seen == MPI_INT && b[0] == 9 && b[1] == 18);
    OK(MPI_Op_free(&op));
    CHECK(op == MPI_OP_NULL);
    OK(MPI_Op_create(add_two, 1, &twos));
    OK(MPI_Op_commutative(twos, &commutes));
    CHECK(commutes == 1);
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Reduce_local(c, d, 2, type, twos));
    CHECK(d[0].a == 6 && d[0].b == 12 && d[1].a == 10 && d[1].b == 32);
    OK(MPI_Op_commutative(MPI_SUM, &commutes));
    CHECK(commutes == 1);
    OK(MPI_Type_free(&type));
    OK(MPI_Op_free(&twos));
    return finish();
}
