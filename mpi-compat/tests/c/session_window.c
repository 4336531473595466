/* A window on a communicator of a session: its group is that of the process set.
   ranks 1 2 4 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Comm comm;
    MPI_Win win;
    MPI_Group group, all;
    int rank, size, result, *memory;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    comm = comm_of(session, "mpi://WORLD", "window");
    rank = rank_of(comm);
    OK(MPI_Comm_size(comm, &size));
    OK(MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &memory, &win));
    *memory = -1;
    OK(MPI_Win_fence(0, win));
    OK(MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win));
    OK(MPI_Win_fence(0, win));
    CHECK(*memory == (rank + size - 1) % size);
    OK(MPI_Win_get_group(win, &group));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &all));
    OK(MPI_Group_compare(group, all, &result));
    CHECK(result == MPI_IDENT);
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&all));
    OK(MPI_Win_free(&win));
    OK(MPI_Comm_free(&comm));
    OK(MPI_Session_finalize(&session));
    return end();
}
