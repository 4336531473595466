/* All ranks give the same root. The right form starts processes, which not every library supports.
   ranks 2
   wrong only
   says VERIFY MPI_COMM_SPAWN(1): root 1 inconsistent with root 0 of 0 */
#include "check.h"

int main(void) {
    MPI_Comm children;
    start();
    MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, WRONG_AT(1, 1, 0), MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    return finish();
}
