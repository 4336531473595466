/* An intercommunicator of two groups of a session, without a communicator of both.
   ranks 2 3 4 */
#include "session.h"

int main(void) {
    MPI_Session session;
    MPI_Group all, halves[2];
    MPI_Comm inter, merged;
    int rank, size, side, flag, other, sum, first[1][3], sent, got = -1;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &all));
    OK(MPI_Group_rank(all, &rank));
    OK(MPI_Group_size(all, &size));
    side = rank % 2;
    for (int i = 0; i < 2; i++) {
        first[0][0] = i;
        first[0][1] = size - 1;
        first[0][2] = 2;
        OK(MPI_Group_range_incl(all, 1, first, &halves[i]));
    }
    OK(MPI_Intercomm_create_from_groups(halves[side], 0, halves[!side], 0, "halves", MPI_INFO_NULL, MPI_ERRORS_RETURN,
                                        &inter));
    OK(MPI_Comm_test_inter(inter, &flag));
    CHECK(flag);
    OK(MPI_Comm_remote_size(inter, &other));
    CHECK(other == (side == 0 ? size / 2 : (size + 1) / 2));
    sent = 7 + side;
    if (rank < 2) {
        OK(MPI_Sendrecv(&sent, 1, MPI_INT, 0, 1, &got, 1, MPI_INT, 0, 1, inter, MPI_STATUS_IGNORE));
        CHECK(got == 7 + !side);
    }
    OK(MPI_Intercomm_merge(inter, side, &merged));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Comm_free(&merged));
    OK(MPI_Comm_free(&inter));
    for (int i = 0; i < 2; i++) OK(MPI_Group_free(&halves[i]));
    OK(MPI_Group_free(&all));
    OK(MPI_Session_finalize(&session));
    return end();
}
