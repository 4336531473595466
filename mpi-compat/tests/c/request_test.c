/* Test, Testall and Testany change nothing before the operations are over.
   ranks 2 */
#include "check.h"

int main(void) {
    int in[2] = {0}, flag, index;
    MPI_Request requests[2], single;
    MPI_Status statuses[2];
    start();
    int me = rank_of(MPI_COMM_WORLD);
    if (me == 0) {
        OK(MPI_Irecv(&in[0], 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[0]));
        OK(MPI_Irecv(&in[1], 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &requests[1]));
        OK(MPI_Testall(2, requests, &flag, statuses));
        CHECK(!flag && requests[0] != MPI_REQUEST_NULL);
        OK(MPI_Testany(2, requests, &index, &flag, statuses));
        CHECK(!flag && index == MPI_UNDEFINED);
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        for (flag = 0; !flag;) OK(MPI_Testany(2, requests, &index, &flag, statuses));
        CHECK(index == 1 && requests[1] == MPI_REQUEST_NULL && requests[0] != MPI_REQUEST_NULL && in[1] == 8);
        OK(MPI_Testall(2, requests, &flag, statuses));
        CHECK(!flag);
        OK(MPI_Send(NULL, 0, MPI_INT, 1, 0, MPI_COMM_WORLD));
        for (flag = 0; !flag;) OK(MPI_Testall(2, requests, &flag, statuses));
        CHECK(in[0] == 7 && statuses[0].MPI_TAG == 0 && statuses[1].MPI_SOURCE == MPI_ANY_SOURCE);
        OK(MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE));
        CHECK(flag);
        OK(MPI_Testany(2, requests, &index, &flag, statuses));
        CHECK(flag && index == MPI_UNDEFINED);
        single = MPI_REQUEST_NULL;
        OK(MPI_Test(&single, &flag, statuses));
        CHECK(flag && statuses[0].MPI_TAG == MPI_ANY_TAG);
    } else {
        for (int i = 1; i >= 0; i--) {
            int value = 7 + i;
            OK(MPI_Recv(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            OK(MPI_Isend(&value, 1, MPI_INT, 0, i, MPI_COMM_WORLD, &single));
            for (flag = 0; !flag;) OK(MPI_Test(&single, &flag, MPI_STATUS_IGNORE));
            CHECK(single == MPI_REQUEST_NULL);
        }
    }
    return finish();
}
