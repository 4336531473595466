/* Sends with receives round a ring, of different lengths and types, and in place.
   ranks 1 2 3 */
#include "check.h"

int main(void) {
    static int data[50000], got[50000];
    int size;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int right = (me + 1) % size, left = (me + size - 1) % size;
    const int lens[] = {1, 1000, 40000};
    for (int i = 0; i < COUNT(lens); i++) {
        MPI_Status status;
        MPI_Request request;
        int count;
        fill(data, lens[i] * sizeof(int), me);
        memset(got, 0, sizeof got);
        OK(MPI_Sendrecv(data, lens[i], MPI_INT, right, me, got, 50000, MPI_INT, left, left, MPI_COMM_WORLD, &status));
        OK(MPI_Get_count(&status, MPI_INT, &count));
        CHECK(count == lens[i] && status.MPI_SOURCE == left && status.MPI_TAG == left);
        CHECK(is_filled(got, lens[i] * sizeof(int), left));
        OK(MPI_Sendrecv_replace(data, lens[i], MPI_INT, right, 1, left, 1, MPI_COMM_WORLD, &status));
        CHECK(is_filled(data, lens[i] * sizeof(int), left) && status.MPI_SOURCE == left);
        fill(data, lens[i] * sizeof(int), me);
        memset(got, 0, sizeof got);
        OK(MPI_Isendrecv(data, lens[i], MPI_INT, right, 2, got, 50000, MPI_INT, left, 2, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, &status));
        CHECK(request == MPI_REQUEST_NULL && is_filled(got, lens[i] * sizeof(int), left));
        OK(MPI_Isendrecv_replace(data, lens[i], MPI_INT, right, 3, left, 3, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(is_filled(data, lens[i] * sizeof(int), left));
    }
    MPI_Status status;
    OK(MPI_Sendrecv(data, 1, MPI_INT, MPI_PROC_NULL, 0, got, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
    return finish();
}
