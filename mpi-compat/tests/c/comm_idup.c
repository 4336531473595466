/* Non-blocking duplicates: several at once, with the attributes at the time of the call.
   ranks 1 2 3 */
#include "check.h"

int main(void) {
    MPI_Comm dups[4];
    MPI_Request requests[4];
    int rank, size, key, sum, result, flag, values[2], *value;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, &values[0]));
    for (int i = 0; i < 3; i++) OK(MPI_Comm_idup(MPI_COMM_WORLD, &dups[i], &requests[i]));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, &values[1]));
    OK(MPI_Comm_idup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &dups[3], &requests[3]));
    OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
    for (int i = 3; i >= 0; i--) {
        OK(MPI_Comm_compare(MPI_COMM_WORLD, dups[i], &result));
        CHECK(result == MPI_CONGRUENT);
        OK(MPI_Comm_get_attr(dups[i], key, &value, &flag));
        CHECK(flag && value == &values[i == 3]);
        OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, dups[i]));
        CHECK(sum == size * (size - 1) / 2);
        OK(MPI_Comm_free(&dups[i]));
    }
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key));
    OK(MPI_Comm_free_keyval(&key));
    return finish();
}
