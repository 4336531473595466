/* Parts that are received must not overlap; columns of a matrix do not, although their ranges do.
   ranks 3
   says VERIFY MPI_GATHERV(0): recvbuf: the parts from 0 and 1 overlap */
#include "check.h"

int main(void) {
    int in[4] = {0}, out[16] = {0}, counts[3] = {4, 4, 4}, places[3] = {0, 4, 8}, ones[3] = {1, 1, 1}, columns[3] = {0, 1, 2};
    MPI_Datatype column, narrow;
    start();
    MPI_Type_vector(4, 1, 4, MPI_INT, &column);
    MPI_Type_create_resized(column, 0, 4, &narrow);
    MPI_Type_commit(&narrow);
    MPI_Gatherv(in, 4, MPI_INT, out, ones, columns, narrow, 0, MPI_COMM_WORLD);
    places[1] = WRONG_AT(0, 3, 4);
    MPI_Gatherv(in, 4, MPI_INT, out, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Type_free(&narrow);
    MPI_Type_free(&column);
    return finish();
}
