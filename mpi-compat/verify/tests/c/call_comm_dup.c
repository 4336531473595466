/* Constructors of communicators are collective; so are the calls on the new one.
   ranks 3
   says VERIFY MPI_COMM_SPLIT(2): call inconsistent with call to MPI_Comm_dup by 0 */
#include "check.h"

int main(void) {
    MPI_Comm comm = MPI_COMM_NULL, other = MPI_COMM_NULL;
    MPI_Request request;
    int code;
    start();
    if (WRONG_AT(2, 1, 0)) code = MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &comm);
    else code = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (code == MPI_SUCCESS) {
        MPI_Barrier(comm);
        MPI_Comm_idup(comm, &other, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(other);
        MPI_Comm_free(&other);
        MPI_Comm_free(&comm);
    }
    return finish();
}
