/* Many receives are open at once, and each is completed by another call, in another order than they were posted; some
   are cancelled, freed, or asked for their status before.
   ranks 1 2 */
#include "check.h"

enum { MANY = 240, KINDS = 8 };

static int into[MANY];
static MPI_Request requests[MANY];

static void post(int from) {
    for (int i = 0; i < MANY; i++) {
        into[i] = -1;
        OK(MPI_Irecv(&into[i], 1, MPI_INT, i % 3 ? from : MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &requests[i]));
        CHECK(MPI_Request_fromint(MPI_Request_toint(requests[i])) == requests[i]);
        for (int before = i - 3; before >= 0 && before < i; before++) CHECK(requests[before] != requests[i]);
    }
}

static void check_status(MPI_Status *status, int from, int i) {
    int count;
    OK(MPI_Get_count(status, MPI_INT, &count));
    CHECK(status->MPI_SOURCE == from && status->MPI_TAG == i && count == 1 && into[i] == 1000 + i);
}

/* Completes request `i` by call number `i % KINDS`. */
static void complete(int from, int i) {
    MPI_Status status;
    int flag = 0, index;
    switch (i % KINDS) {
    case 0:
        OK(MPI_Wait(&requests[i], &status));
        break;
    case 1:
        while (!flag) OK(MPI_Test(&requests[i], &flag, &status));
        break;
    case 2:
        OK(MPI_Waitall(1, &requests[i], &status));
        break;
    case 3:
        OK(MPI_Waitany(1, &requests[i], &index, &status));
        CHECK(index == 0);
        break;
    case 4:
        while (!flag) OK(MPI_Request_get_status(requests[i], &flag, &status));
        check_status(&status, from, i);
        OK(MPI_Wait(&requests[i], &status));
        break;
    case 5:
        while (!flag) OK(MPI_Testall(1, &requests[i], &flag, &status));
        break;
    case 6:
        OK(MPI_Waitsome(1, &requests[i], &flag, &index, &status));
        CHECK(flag == 1 && index == 0);
        break;
    default:
        /* It was freed, and its data arrives nevertheless. */
        CHECK(requests[i] == MPI_REQUEST_NULL);
        return;
    }
    check_status(&status, from, i);
    CHECK(requests[i] == MPI_REQUEST_NULL);
}

int main(void) {
    int rank, ranks, value;
    MPI_Status status;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int peer = (rank + 1) % ranks;
    for (int round = 0; round < 3; round++) {
        post(peer);
        for (int i = 7; i < MANY; i += KINDS) OK(MPI_Request_free(&requests[i]));
        OK(MPI_Barrier(MPI_COMM_WORLD));
        for (int i = MANY; i-- > 0;) {
            value = 1000 + i;
            OK(MPI_Send(&value, 1, MPI_INT, peer, i, MPI_COMM_WORLD));
        }
        for (int i = 0; i < MANY; i++) complete(peer, i * 7 % MANY);
        /* Those that were freed end too, without a call that tells when. */
        for (int i = 7, flag; i < MANY; i += KINDS) {
            while (((volatile int *)into)[i] != 1000 + i)
                OK(MPI_Iprobe(MPI_ANY_SOURCE, MANY, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    /* Cancelled receives give their places to others. */
    post(peer);
    for (int i = 0; i < MANY; i++) {
        int cancelled;
        OK(MPI_Cancel(&requests[i]));
        OK(MPI_Wait(&requests[i], &status));
        OK(MPI_Test_cancelled(&status, &cancelled));
        CHECK(cancelled && requests[i] == MPI_REQUEST_NULL);
    }
    return finish();
}
