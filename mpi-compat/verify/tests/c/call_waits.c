/* Non-blocking calls are checked in every function that completes requests, in any order, and their start does not
   wait for other processes.
   ranks 3
   fatal
   says VERIFY MPI_IALLREDUCE(1): op MPI_MAX inconsistent with op MPI_SUM of 0 */
#include "check.h"

int main(void) {
    MPI_Request requests[6];
    int in, sum[6], done, index, n, indices[6], left, value = 5;
    MPI_Comm comm;
    start();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    in = rank;
    /* Rank 0 starts, and comes to its wait after a message that rank 1 sends before it starts. */
    if (rank == 1) MPI_Send(&in, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[0]);
    if (rank == 0) MPI_Recv(&n, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 6; i++)
            MPI_Iallreduce(&in, &sum[i], 1, MPI_INT, round == 5 && i == 2 ? WRONG_AT(1, MPI_MAX, MPI_SUM) : MPI_SUM,
                MPI_COMM_WORLD, &requests[i]);
        left = 6;
        switch (round) {
        case 0: MPI_Waitall(6, requests, MPI_STATUSES_IGNORE); break;
        case 1:
            while (left-- > 0) MPI_Waitany(6, requests, &index, MPI_STATUS_IGNORE);
            MPI_Waitany(6, requests, &index, MPI_STATUS_IGNORE);
            if (index != MPI_UNDEFINED) printf("FAILED index\n");
            break;
        case 2:
            for (; left > 0; left -= n) MPI_Waitsome(6, requests, &n, indices, MPI_STATUSES_IGNORE);
            break;
        case 3:
            for (; left > 0; left -= n) MPI_Testsome(6, requests, &n, indices, MPI_STATUSES_IGNORE);
            break;
        case 4:
            while (left > 0) {
                MPI_Testany(6, requests, &index, &done, MPI_STATUS_IGNORE);
                if (done && index == MPI_UNDEFINED) printf("FAILED none left\n");
                left -= done;
            }
            break;
        default:
            for (int i = rank % 6, k = 0; k < 6; k++, i = (i + 1) % 6)
                do MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
                while (!done);
        }
        for (int i = 0; i < 6; i++)
            if (sum[i] != 3 || requests[i] != MPI_REQUEST_NULL) printf("FAILED rank %d round %d: %d\n", rank, round, sum[i]);
    }
    MPI_Comm_idup(MPI_COMM_WORLD, &comm, &requests[0]);
    MPI_Ibcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[1]);
    do MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
    while (!done);
    MPI_Bcast(&value, 1, MPI_INT, 0, comm);
    MPI_Comm_free(&comm);
    return finish();
}
