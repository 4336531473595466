/* The two sides partition the message differently: into fewer and into more partitions, whose ends do not coincide.
   ranks 2 3 */
#include "check.h"

static void exchange(int sends, int send_count, int receives, int receive_count) {
    int total = sends * send_count, rank = rank_of(MPI_COMM_WORLD), size;
    short *data = malloc(total * sizeof(short));
    MPI_Request request;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(total == receives * receive_count);
    if (rank == 0) {
        OK(MPI_Psend_init(data, sends, send_count, MPI_SHORT, size - 1, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        for (int i = sends - 1; i >= 0; i--) {
            for (int j = i * send_count; j < (i + 1) * send_count; j++) data[j] = (short)(3 * j + sends);
            OK(MPI_Pready(i, request));
        }
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Request_free(&request));
    } else if (rank == size - 1) {
        OK(MPI_Precv_init(data, receives, receive_count, MPI_SHORT, 0, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
        OK(MPI_Start(&request));
        for (int i = 0; i < receives; i++) {
            int flag = 0;
            while (!flag) OK(MPI_Parrived(request, i, &flag));
            for (int j = i * receive_count; j < (i + 1) * receive_count; j++) CHECK(data[j] == (short)(3 * j + sends));
        }
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Request_free(&request));
    }
    free(data);
}

int main(void) {
    start();
    exchange(12, 5, 4, 15);
    exchange(4, 15, 12, 5);
    exchange(10, 7, 14, 5);
    exchange(1, 60, 60, 1);
    exchange(60, 1, 1, 60);
    return finish();
}
