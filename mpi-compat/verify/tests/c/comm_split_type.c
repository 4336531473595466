/* All ranks that take part give one kind of split.
   ranks 3
   says VERIFY MPI_COMM_SPLIT_TYPE(2): split_type 222 inconsistent with split_type 221 of 0 */
#include "check.h"

int main(void) {
    MPI_Comm comm = MPI_COMM_NULL;
    int kind;
    start();
    kind = rank == 1 ? MPI_UNDEFINED : WRONG_AT(2, MPI_COMM_TYPE_HW_UNGUIDED, MPI_COMM_TYPE_SHARED);
    MPI_Comm_split_type(MPI_COMM_WORLD, kind, 0, MPI_INFO_NULL, &comm);
    if (comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
    return finish();
}
