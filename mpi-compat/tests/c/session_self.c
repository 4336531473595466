/* The process set of this process alone; its communicator is made without the others.
   ranks 1 3 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm self;
    int rank, size, value = 5, got = 0;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    self = comm_of(session, "mpi://SELF", "self");
    OK(MPI_Comm_rank(self, &rank));
    OK(MPI_Comm_size(self, &size));
    CHECK(rank == 0 && size == 1);
    OK(MPI_Sendrecv(&value, 1, MPI_INT, 0, 0, &got, 1, MPI_INT, 0, 0, self, MPI_STATUS_IGNORE));
    CHECK(got == 5);
    OK(MPI_Comm_free(&self));
    OK(MPI_Session_finalize(&session));
    return end();
}
