/* Messages of a rank to itself, in every mode and length, posted before and after. */
#include "check.h"

int main(void) {
    static char data[200000], got[200000];
    const int lens[] = {0, 8, 100, 60000, 200000};
    start();
    for (int i = 0; i < COUNT(lens); i++) {
        for (int late = 0; late < 2; late++) {
            for (int synchronous = 0; synchronous < 2; synchronous++) {
                MPI_Request send, receive;
                MPI_Status status;
                int count;
                fill(data, lens[i], i);
                memset(got, 0, sizeof got);
                if (!late) OK(MPI_Irecv(got, sizeof got, MPI_CHAR, 0, 4, MPI_COMM_SELF, &receive));
                if (synchronous) OK(MPI_Issend(data, lens[i], MPI_CHAR, 0, 4, MPI_COMM_SELF, &send));
                else OK(MPI_Isend(data, lens[i], MPI_CHAR, 0, 4, MPI_COMM_SELF, &send));
                if (late) OK(MPI_Irecv(got, sizeof got, MPI_CHAR, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &receive));
                OK(MPI_Wait(&receive, &status));
                OK(MPI_Wait(&send, MPI_STATUS_IGNORE));
                OK(MPI_Get_count(&status, MPI_CHAR, &count));
                CHECK(count == lens[i] && status.MPI_SOURCE == 0 && status.MPI_TAG == 4);
                CHECK(is_filled(got, lens[i], i));
            }
        }
    }
    OK(MPI_Sendrecv(data, 3, MPI_CHAR, 0, 1, got, 3, MPI_CHAR, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    CHECK(memcmp(data, got, 3) == 0);
    return finish();
}
