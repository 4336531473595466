/* Each rank has its own handle of a user-defined operator; but either all give one, or none.
   ranks 2
   says VERIFY MPI_ALLREDUCE(1): op MPI_SUM inconsistent with op of the program of 0 */
#include "check.h"

static void add(void *in, void *out, int *n, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *n; i++) ((int *)out)[i] += ((int *)in)[i];
}

int main(void) {
    int in = 1, sum = 0;
    MPI_Op op, other;
    start();
    if (rank == 1) MPI_Op_create(add, 0, &other);
    MPI_Op_create(add, 1, &op);
    MPI_Allreduce(&in, &sum, 1, MPI_INT, WRONG_AT(1, MPI_SUM, op), MPI_COMM_WORLD);
    if (!IS_WRONG && sum != 2) printf("FAILED %d\n", sum);
    return finish();
}
