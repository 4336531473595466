/* The forms with large counts behave as the others.
   ranks 2
   not on peers: MPICH's wheel has no large forms of some of them */
#include "check.h"

int main(void) {
    MPI_Count n = 5;
    int data[5] = {1, 2, 3, 4, 5}, got[5];
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    start();
    int me = rank_of(MPI_COMM_WORLD), other = 1 - me;
    for (int i = 0; i < 6; i++) {
        memset(got, 0, sizeof got);
        switch (i) {
        case 0:
            if (me == 0) OK(MPI_Send_c(data, n, MPI_INT, 1, 0, MPI_COMM_WORLD));
            else OK(MPI_Recv_c(got, n, MPI_INT, 0, 0, MPI_COMM_WORLD, &status));
            break;
        case 1:
            if (me == 0) OK(MPI_Ssend_c(data, n, MPI_INT, 1, 0, MPI_COMM_WORLD));
            else {
                OK(MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, &status));
                OK(MPI_Mrecv_c(got, n, MPI_INT, &message, &status));
            }
            break;
        case 2:
            if (me == 0) OK(MPI_Isend_c(data, n, MPI_INT, 1, 0, MPI_COMM_WORLD, &request));
            else OK(MPI_Irecv_c(got, n, MPI_INT, 0, 0, MPI_COMM_WORLD, &request));
            OK(MPI_Wait(&request, &status));
            break;
        case 3:
            OK(MPI_Sendrecv_c(data, n, MPI_INT, other, 0, got, n, MPI_INT, other, 0, MPI_COMM_WORLD, &status));
            break;
        case 4:
            if (me == 0) OK(MPI_Send_init_c(data, n, MPI_INT, 1, 0, MPI_COMM_WORLD, &request));
            else OK(MPI_Recv_init_c(got, n, MPI_INT, 0, 0, MPI_COMM_WORLD, &request));
            OK(MPI_Start(&request));
            OK(MPI_Wait(&request, &status));
            OK(MPI_Request_free(&request));
            break;
        case 5:
            memcpy(got, data, sizeof got);
            OK(MPI_Sendrecv_replace_c(got, n, MPI_INT, other, 0, other, 0, MPI_COMM_WORLD, &status));
            break;
        }
        if (me == 1) CHECK(memcmp(data, got, sizeof got) == 0);
    }
    FAILS(MPI_ERR_COUNT, MPI_Send_c(data, -1, MPI_INT, other, 0, MPI_COMM_WORLD));
    FAILS(MPI_ERR_COUNT, MPI_Send_c(data, (MPI_Count)1 << 62, MPI_INT, other, 0, MPI_COMM_WORLD));
    return finish();
}
