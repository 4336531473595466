/* Every block must have a datatype, even without elements.
   ranks 2
   says VERIFY MPI_ALLTOALLW(1): datatype is MPI_DATATYPE_NULL
   says VERIFY MPI_GATHERV(1): sendtype is MPI_DATATYPE_NULL */
#define HANDLED 2
#include "check.h"

int main(void) {
    int in[2] = {0}, out[2] = {0}, counts[2] = {0, 0}, places[2] = {0, 0};
    MPI_Datatype type, types[2] = {MPI_INT, MPI_INT};
    start();
    type = types[0] = WRONG_AT(1, MPI_DATATYPE_NULL, MPI_INT);
    MPI_Alltoallw(in, counts, places, types, out, counts, places, types, MPI_COMM_WORLD);
    MPI_Gatherv(in, 0, type, out, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
    return finish();
}
