/* If ranks pass different operators, each commutative, the result is undefined but there is no error, and later calls
   work.
   ranks 2 3 */
#include "check.h"

#define MANY 5000

int main(void) {
    static int zeros[MANY], out[MANY];
    int rank, size;
    MPI_Op op;
    MPI_Request request;
    start();
    rank = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    op = (MPI_Op[]){MPI_SUM, MPI_MAX, MPI_BOR}[rank % 3];
    for (int n = 1; n <= MANY; n = n * 17 + 1) {
        out[0] = out[n - 1] = 7;
        OK(MPI_Allreduce(zeros, out, n, MPI_INT, op, MPI_COMM_WORLD));
        CHECK(out[0] == 0 && out[n - 1] == 0);
        OK(MPI_Reduce(zeros, out, n, MPI_INT, op, size - 1, MPI_COMM_WORLD));
        OK(MPI_Scan(zeros, out, n, MPI_INT, op, MPI_COMM_WORLD));
        OK(MPI_Exscan(zeros, out, n, MPI_INT, op, MPI_COMM_WORLD));
        OK(MPI_Reduce_scatter_block(zeros, out, n / size, MPI_INT, op, MPI_COMM_WORLD));
        OK(MPI_Iallreduce(zeros, out, n, MPI_INT, op, MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(out[0] == 0 && out[n - 1] == 0);
    }
    OK(MPI_Allreduce(&rank, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(out[0] == size * (size - 1) / 2);
    return finish();
}
