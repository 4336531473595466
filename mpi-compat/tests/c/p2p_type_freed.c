/* A datatype may be freed while messages that use it are in progress.
   ranks 2 */
#include "check.h"

int main(void) {
    static double data[30000], got[30000];
    MPI_Datatype type;
    MPI_Request requests[2];
    start();
    int other = 1 - rank_of(MPI_COMM_WORLD);
    for (int i = 0; i < 30000; i++) data[i] = i + other;
    OK(MPI_Type_vector(10000, 1, 3, MPI_DOUBLE, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Irecv(got, 1, type, other, 0, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Isend(data, 1, type, other, 0, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Type_free(&type));
    CHECK(type == MPI_DATATYPE_NULL);
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 30000; i++) CHECK(got[i] == (i % 3 == 0 ? i + 1 - other : 0));
    return finish();
}
