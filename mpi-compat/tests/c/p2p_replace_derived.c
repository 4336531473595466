/* Sendrecv_replace with a derived datatype does not change the gaps.
   ranks 2 */
#include "check.h"

int main(void) {
    int data[300];
    MPI_Datatype type;
    start();
    int me = rank_of(MPI_COMM_WORLD), other = 1 - me;
    for (int i = 0; i < 300; i++) data[i] = 1000 * me + i;
    OK(MPI_Type_vector(100, 2, 3, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Sendrecv_replace(data, 1, type, other, 0, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < 300; i++) CHECK(data[i] == 1000 * (i % 3 == 2 ? me : other) + i);
    OK(MPI_Type_free(&type));
    return finish();
}
