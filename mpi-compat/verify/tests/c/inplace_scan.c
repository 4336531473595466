/* MPI_IN_PLACE by all ranks or by none.
   ranks 3
   says VERIFY MPI_SCAN(2): MPI_IN_PLACE inconsistent with buffer of 0 */
#include "check.h"

int main(void) {
    int in[3] = {0}, out[3] = {0}, counts[3] = {1, 1, 1}, places[3] = {0, 1, 2}, bytes[3] = {0, 4, 8};
    MPI_Datatype types[3] = {MPI_INT, MPI_INT, MPI_INT};
    (void)counts, (void)places, (void)bytes, (void)types;
    start();
    MPI_Scan(WRONG_AT(2, MPI_IN_PLACE, (void *)in), out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!IS_WRONG) MPI_Scan(MPI_IN_PLACE, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return finish();
}
