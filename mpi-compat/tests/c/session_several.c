/* Several sessions at once: messages on communicators of one are not received on those of another, and the end of one
   does not affect the other.
   ranks 1 2 4 */
#include "session.h"

int main(void) {
    MPI_Session first, second;
    MPI_Comm one, two;
    MPI_Request requests[2];
    int rank, size, sent[2] = {10, 20}, got[2] = {0, 0}, sum;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &first));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &second));
    CHECK(first != second);
    one = comm_of(first, "mpi://WORLD", "tag");
    two = comm_of(second, "mpi://WORLD", "tag");
    OK(MPI_Comm_rank(one, &rank));
    OK(MPI_Comm_size(one, &size));
    OK(MPI_Irecv(&got[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, two, &requests[1]));
    OK(MPI_Irecv(&got[0], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, one, &requests[0]));
    OK(MPI_Send(&sent[0], 1, MPI_INT, (rank + 1) % size, 0, one));
    OK(MPI_Send(&sent[1], 1, MPI_INT, (rank + 1) % size, 0, two));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(got[0] == 10 && got[1] == 20);
    OK(MPI_Comm_free(&one));
    OK(MPI_Session_finalize(&first));
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, two));
    CHECK(sum == size * (size - 1) / 2);
    OK(MPI_Comm_free(&two));
    OK(MPI_Session_finalize(&second));
    return end();
}
