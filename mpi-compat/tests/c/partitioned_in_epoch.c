/* A partitioned receive progresses while its process waits in calls of windows, or tests a window.
   ranks 2 */
#include "check.h"
#include <unistd.h>

enum { LEN = 8 << 20 };

int main(void) {
    MPI_Request request;
    MPI_Group world, other;
    MPI_Win win;
    int *base, flag = 0;
    start();
    int me = rank_of(MPI_COMM_WORLD), peer = !me;
    unsigned char *data = malloc(LEN);
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 1, &peer, &other));
    OK(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win));
    for (int round = 0; round < 3; round++) {
        if (me == 1) {
            OK(MPI_Precv_init(data, 1, LEN, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
            OK(MPI_Start(&request));
            if (round == 2) OK(MPI_Win_fence(0, win));
            else OK(MPI_Win_post(other, 0, win));
            if (round == 0) OK(MPI_Win_wait(win));
            flag = round != 1;
            while (!flag) OK(MPI_Win_test(win, &flag));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            CHECK(is_filled(data, LEN, round));
        } else {
            if (round != 2) OK(MPI_Win_start(other, 0, win));
            usleep(100000);
            fill(data, LEN, round);
            OK(MPI_Psend_init(data, 1, LEN, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
            OK(MPI_Start(&request));
            OK(MPI_Pready(0, request));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            if (round == 2) OK(MPI_Win_fence(0, win));
            else OK(MPI_Win_complete(win));
        }
        OK(MPI_Request_free(&request));
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Group_free(&other));
    OK(MPI_Group_free(&world));
    OK(MPI_Win_free(&win));
    return finish();
}
