/* One or some of many requests: receives, sends, persistent and null requests in one array, which changes between the
   calls. Every request is completed once, with its own status.
   ranks 2
   not on peers: MPICH 5.0.2 ends with a segmentation fault */
#include "check.h"

enum { N = 400 };

static int rank, data[N], out[N];
static MPI_Request requests[N];

/* The order in which messages are sent. */
static int shuffled(int i) { return (int)((unsigned)i * 171u % N); }

static void post(int i) { OK(MPI_Irecv(&data[i], 1, MPI_INT, 1 - rank, i, MPI_COMM_WORLD, &requests[i])); }

static void send_all(int base) {
    for (int i = 0; i < N; i++) {
        int at = shuffled(i), word = base + at;
        OK(MPI_Send(&word, 1, MPI_INT, 1 - rank, at, MPI_COMM_WORLD));
    }
}

static void check_one(int at, int base, const MPI_Status *status, char *done) {
    CHECK(at >= 0 && at < N && !done[at]);
    if (at < 0 || at >= N) return;
    done[at] = 1;
    CHECK(status->MPI_TAG == at && status->MPI_SOURCE == 1 - rank && data[at] == base + at);
    CHECK(requests[at] == MPI_REQUEST_NULL);
}

static void any(int base, int wait) {
    char done[N] = {0};
    MPI_Status status;
    int at = 0, flag;
    for (int i = 0; i < N; i++) post(i);
    MPI_Barrier(MPI_COMM_WORLD);
    send_all(base);
    for (int left = N; left > 0; left -= flag) {
        flag = 1;
        if (wait) OK(MPI_Waitany(N, requests, &at, &status));
        else OK(MPI_Testany(N, requests, &at, &flag, &status));
        if (flag) check_one(at, base, &status, done);
    }
    OK(MPI_Waitany(N, requests, &at, &status));
    CHECK(at == MPI_UNDEFINED && status.MPI_SOURCE == MPI_ANY_SOURCE);
    OK(MPI_Testany(N, requests, &at, &flag, &status));
    CHECK(at == MPI_UNDEFINED && flag == 1);
}

static void some(int base, int wait) {
    static MPI_Status statuses[N];
    static int which[N];
    char done[N] = {0};
    int count = 0;
    for (int i = 0; i < N; i++) post(i);
    MPI_Barrier(MPI_COMM_WORLD);
    send_all(base);
    for (int left = N; left > 0; left -= count) {
        if (wait) OK(MPI_Waitsome(N, requests, &count, which, statuses));
        else OK(MPI_Testsome(N, requests, &count, which, statuses));
        CHECK(count >= wait && count <= left);
        for (int i = 0; i < count; i++) check_one(which[i], base, &statuses[i], done);
    }
    OK(MPI_Testsome(N, requests, &count, which, statuses));
    CHECK(count == MPI_UNDEFINED);
}

/* Each completed receive is posted again at its place, three times. */
static void again(void) {
    int left[N], at;
    MPI_Status status;
    for (int i = 0; i < N; i++) left[i] = 3, post(i);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int turn = 0; turn < 3; turn++) send_all(1000 * turn);
    for (int i = 0; i < 3 * N; i++) {
        OK(MPI_Waitany(N, requests, &at, &status));
        CHECK(at >= 0 && at < N && left[at] > 0);
        if (at < 0 || at >= N) return;
        CHECK(status.MPI_TAG == at && data[at] == 1000 * (3 - left[at]) + at);
        if (--left[at] > 0) post(at);
    }
}

/* Sends, a persistent receive, null requests, and receives that are waited for elsewhere. */
static void mixed(void) {
    char done[N] = {0};
    int at, flag, active = 0, outcome;
    MPI_Status status;
    for (int i = 0; i < N; i++) {
        out[i] = 7 * i;
        requests[i] = MPI_REQUEST_NULL;
        if (i % 4 == 0) post(i);
        if (i % 4 == 1) OK(MPI_Issend(&out[i - 1], 1, MPI_INT, 1 - rank, i - 1, MPI_COMM_WORLD, &requests[i]));
        if (i % 4 == 2) OK(MPI_Recv_init(&data[i], 1, MPI_INT, 1 - rank, i, MPI_COMM_WORLD, &requests[i]));
        active += i % 4 < 2;
    }
    OK(MPI_Start(&requests[2]));
    OK(MPI_Send(&out[2], 1, MPI_INT, 1 - rank, 2, MPI_COMM_WORLD));
    OK(MPI_Wait(&requests[8], &status));
    CHECK(status.MPI_TAG == 8 && data[8] == 56);
    for (int left = active; left > 0; left--) {
        OK(MPI_Request_get_status_any(N, requests, &at, &flag, &status));
        CHECK(!flag || (requests[at] != MPI_REQUEST_NULL && !done[at]));
        OK(MPI_Waitany(N, requests, &at, &status));
        CHECK(at >= 0 && at < N && !done[at] && at % 4 < 3 && at != 8);
        if (at < 0 || at >= N) return;
        done[at] = 1;
        if (at % 4 != 1) CHECK(status.MPI_TAG == at && data[at] == 7 * at);
        CHECK((requests[at] == MPI_REQUEST_NULL) == (at % 4 != 2));
    }
    OK(MPI_Testany(N, requests, &at, &flag, &status));
    CHECK(flag && at == MPI_UNDEFINED);
    OK(MPI_Request_get_status(requests[2], &outcome, &status));
    for (int i = 2; i < N; i += 4) OK(MPI_Request_free(&requests[i]));
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(void) {
    start();
    rank = rank_of(MPI_COMM_WORLD);
    any(10, 1);
    any(20000, 0);
    some(30000, 1);
    some(40000, 0);
    again();
    mixed();
    return finish();
}
