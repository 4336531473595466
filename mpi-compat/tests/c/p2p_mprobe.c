/* A message that a matched probe has taken is received only by its handle.
   ranks 2 */
#include "check.h"

int main(void) {
    static char got[100000], data[3][100000];
    MPI_Request sends[3];
    const int lens[] = {0, 30, 100000};
    start();
    int me = rank_of(MPI_COMM_WORLD), flag, count;
    for (int i = 0; i < COUNT(lens); i++) {
        MPI_Message message;
        MPI_Request request;
        MPI_Status status;
        if (me == 0) {
            for (int n = 0; n < 3; n++) {
                fill(data[n], lens[i], n);
                OK(MPI_Isend(data[n], lens[i], MPI_CHAR, 1, 0, MPI_COMM_WORLD, &sends[n]));
            }
            OK(MPI_Waitall(3, sends, MPI_STATUSES_IGNORE));
            OK(MPI_Recv(NULL, 0, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, &status));
            OK(MPI_Get_count(&status, MPI_CHAR, &count));
            CHECK(count == lens[i] && message != MPI_MESSAGE_NULL);
            /* The second message overtakes the first, which is taken. */
            OK(MPI_Recv(got, sizeof got, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &status));
            CHECK(is_filled(got, lens[i], 1));
            OK(MPI_Mrecv(got, count, MPI_CHAR, &message, &status));
            CHECK(message == MPI_MESSAGE_NULL && is_filled(got, lens[i], 0) && status.MPI_SOURCE == 0);
            for (flag = 0; !flag;) OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status));
            OK(MPI_Imrecv(got, sizeof got, MPI_CHAR, &message, &request));
            CHECK(message == MPI_MESSAGE_NULL);
            OK(MPI_Wait(&request, &status));
            OK(MPI_Get_count(&status, MPI_CHAR, &count));
            CHECK(count == lens[i] && is_filled(got, lens[i], 2) && status.MPI_TAG == 0);
            OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &message, &status));
            CHECK(!flag);
            OK(MPI_Send(NULL, 0, MPI_INT, 0, 1, MPI_COMM_WORLD));
        }
    }
    return finish();
}
