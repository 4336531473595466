/* An empty group gives no communicator. */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm comm = MPI_COMM_WORLD;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Comm_create_from_group(MPI_GROUP_EMPTY, "nobody", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    CHECK(comm == MPI_COMM_NULL);
    OK(MPI_Session_finalize(&session));
    return end();
}
