/* All ranks give the same root, and all connect or all accept.
   ranks 2
   wrong only
   says VERIFY MPI_COMM_ACCEPT(1): root 1 inconsistent with root 0 of 0
   says VERIFY MPI_COMM_CONNECT(1): call inconsistent with call to MPI_Comm_accept by 0 */
#include "check.h"

int main(void) {
    MPI_Comm other;
    start();
    MPI_Comm_accept("port", MPI_INFO_NULL, WRONG_AT(1, 1, 0), MPI_COMM_WORLD, &other);
    if (WRONG_AT(1, 1, 0)) MPI_Comm_connect("port", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
    else MPI_Comm_accept("port", MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other);
    handled -= IS_WRONG;
    return finish();
}
