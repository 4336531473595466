/* Either all ranks give MPI_IN_PLACE, or none.
   ranks 3
   says VERIFY MPI_ALLGATHER(2): MPI_IN_PLACE inconsistent with buffer of 0
   says VERIFY MPI_ALLGATHERV(2): MPI_IN_PLACE inconsistent with buffer of 0
   says VERIFY MPI_ALLTOALL(2): MPI_IN_PLACE inconsistent with buffer of 0
   says VERIFY MPI_ALLTOALLV(2): MPI_IN_PLACE inconsistent with buffer of 0
   says VERIFY MPI_ALLTOALLW(2): MPI_IN_PLACE inconsistent with buffer of 0
   says VERIFY MPI_ALLREDUCE(2): MPI_IN_PLACE inconsistent with buffer of 0
   says VERIFY MPI_REDUCE_SCATTER(2): MPI_IN_PLACE inconsistent with buffer of 0
   says VERIFY MPI_SCAN(2): MPI_IN_PLACE inconsistent with buffer of 0 */
#define HANDLED 8
#include "check.h"

int main(void) {
    int in[3] = {0}, out[3] = {0}, counts[3] = {1, 1, 1}, places[3] = {0, 1, 2}, bytes[3] = {0, 4, 8};
    MPI_Datatype types[3] = {MPI_INT, MPI_INT, MPI_INT};
    void *from;
    start();
    from = WRONG_AT(2, MPI_IN_PLACE, (void *)in);
    MPI_Allgather(from, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgatherv(from, 1, MPI_INT, out, counts, places, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoall(from, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoallv(from, counts, places, MPI_INT, out, counts, places, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoallw(from, counts, bytes, types, out, counts, bytes, types, MPI_COMM_WORLD);
    MPI_Allreduce(from, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce_scatter(from, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Scan(from, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (IS_WRONG) return finish();
    MPI_Allgather(MPI_IN_PLACE, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Allgatherv(MPI_IN_PLACE, 1, MPI_INT, out, counts, places, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoallv(MPI_IN_PLACE, counts, places, MPI_INT, out, counts, places, MPI_INT, MPI_COMM_WORLD);
    MPI_Alltoallw(MPI_IN_PLACE, counts, bytes, types, out, counts, bytes, types, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce_scatter(MPI_IN_PLACE, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Scan(MPI_IN_PLACE, out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return finish();
}
