/* Sent sizes are received sizes.
   ranks 3
   says VERIFY MPI_REDUCE(1): datasize 8 inconsistent with datasize 4 of 0 */
#include "check.h"

int main(void) {
    int in[12] = {0}, out[12] = {0}, counts[3] = {1, 1, 1}, places[3] = {0, 4, 8}, bytes[3] = {0, 16, 32}, other[3];
    MPI_Datatype types[3] = {MPI_INT, MPI_INT, MPI_INT};
    (void)counts, (void)places, (void)bytes, (void)types, (void)in, (void)out;
    start();
    memcpy(other, counts, sizeof counts);
    other[1] = WRONG_AT(0, 2, 1);
    MPI_Reduce(in, out, WRONG_AT(1, 2, 1), MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    return finish();
}
