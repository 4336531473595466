/* Messages that are in a buffer when MPI ends arrive.
   ranks 2 */
#include "check.h"

int main(void) {
    static char room[200000], data[100000], got[100000];
    start();
    fill(data, sizeof data, 3);
    if (rank_of(MPI_COMM_WORLD) == 0) {
        OK(MPI_Buffer_attach(room, sizeof room));
        OK(MPI_Bsend(data, sizeof data, MPI_CHAR, 1, 0, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(got, sizeof got, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(is_filled(got, sizeof got, 3));
    }
    return finish();
}
