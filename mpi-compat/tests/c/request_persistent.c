/* Persistent requests in all modes are started repeatedly, alone and together.
   ranks 2 */
#include "check.h"

typedef int Init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

int main(void) {
    Init *const inits[] = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init, MPI_Rsend_init};
    static int out[10000], in[10000];
    static char room[2 * (sizeof out + MPI_BSEND_OVERHEAD)];
    MPI_Request requests[2];
    MPI_Status statuses[2], status;
    void *address;
    start();
    int me = rank_of(MPI_COMM_WORLD), other = 1 - me, flag, size;
    OK(MPI_Buffer_attach(room, sizeof room));
    for (int mode = 0; mode < 4; mode++) {
        for (int n = 1; n <= 10000; n *= 100) {
            OK(MPI_Recv_init(in, 10000, MPI_INT, other, mode, MPI_COMM_WORLD, &requests[0]));
            OK(inits[mode](out, n, MPI_INT, other, mode, MPI_COMM_WORLD, &requests[1]));
            for (int round = 0; round < 5; round++) {
                int count;
                fill(out, n * sizeof(int), me + round);
                memset(in, 0, sizeof in);
                if (mode == 3 || round == 0) {
                    OK(MPI_Start(&requests[0]));
                    OK(MPI_Sendrecv(NULL, 0, MPI_INT, other, 9, NULL, 0, MPI_INT, other, 9, MPI_COMM_WORLD, &status));
                    OK(MPI_Start(&requests[1]));
                } else {
                    OK(MPI_Startall(2, requests));
                }
                OK(MPI_Waitall(2, requests, statuses));
                OK(MPI_Get_count(&statuses[0], MPI_INT, &count));
                CHECK(count == n && statuses[0].MPI_SOURCE == other && statuses[0].MPI_TAG == mode);
                CHECK(is_filled(in, n * sizeof(int), other + round));
                CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL);
            }
            /* Inactive requests count as complete, with empty statuses. */
            OK(MPI_Wait(&requests[0], &status));
            CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
            OK(MPI_Test(&requests[1], &flag, &status));
            CHECK(flag);
            OK(MPI_Request_free(&requests[0]));
            OK(MPI_Request_free(&requests[1]));
            CHECK(requests[0] == MPI_REQUEST_NULL);
        }
    }
    OK(MPI_Buffer_detach(&address, &size));
    return finish();
}
