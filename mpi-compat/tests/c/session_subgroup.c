/* A communicator of some processes of a set, made by only these, in another order.
   ranks 1 2 3 4 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Group all, part;
    MPI_Comm comm;
    int rank, size, ranks[16], members = 0, sum;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &all));
    OK(MPI_Group_rank(all, &rank));
    OK(MPI_Group_size(all, &size));
    for (int i = size - 1; i >= 0; i--)
        if (i % 2 == rank % 2) ranks[members++] = i;
    OK(MPI_Group_incl(all, members, ranks, &part));
    OK(MPI_Comm_create_from_group(part, rank % 2 ? "odd" : "even", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    CHECK(ranks[rank_of(comm)] == rank);
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < members; i++) sum -= ranks[i];
    CHECK(sum == 0);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Group_free(&part));
    OK(MPI_Group_free(&all));
    OK(MPI_Session_finalize(&session));
    return end();
}
