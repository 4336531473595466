/* A partitioned message to oneself, whose first half arrives before the other is ready.
   not on peers: in MPICH no partition comes before all are ready */
#include "check.h"

int main(void) {
    MPI_Request requests[2];
    long out[4] = {9, 8, 7, 6}, in[4] = {0};
    int flag;
    start();
    OK(MPI_Psend_init(out, 4, 1, MPI_LONG, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Precv_init(in, 2, 2, MPI_LONG, 0, 0, MPI_COMM_SELF, MPI_INFO_NULL, &requests[1]));
    OK(MPI_Startall(2, requests));
    OK(MPI_Pready_range(2, 3, requests[0]));
    flag = 0;
    while (!flag) OK(MPI_Parrived(requests[1], 1, &flag));
    CHECK(in[2] == 7 && in[3] == 6);
    OK(MPI_Pready_range(0, 1, requests[0]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(in[0] == 9 && in[1] == 8);
    for (int i = 0; i < 2; i++) OK(MPI_Request_free(&requests[i]));
    return finish();
}
