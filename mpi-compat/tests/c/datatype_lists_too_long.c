/* Lists that exceed all memory are an error, and do not end the process.
   not on peers: not promised */
#include "check.h"

int main(void) {
    const MPI_Count lengths[] = {1LL << 62, 1LL << 40}, at[2] = {0, 1}, one[2] = {1, 1};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT}, new;
    start();
    for (int i = 0; i < COUNT(lengths); i++) {
        MPI_Count n = lengths[i];
        FAILS(MPI_ERR_NO_MEM, MPI_Type_indexed_c(n, one, at, MPI_INT, &new));
        FAILS(MPI_ERR_NO_MEM, MPI_Type_create_hindexed_c(n, one, at, MPI_INT, &new));
        FAILS(MPI_ERR_NO_MEM, MPI_Type_create_indexed_block_c(n, 1, at, MPI_INT, &new));
        FAILS(MPI_ERR_NO_MEM, MPI_Type_create_hindexed_block_c(n, 1, at, MPI_INT, &new));
        FAILS(MPI_ERR_NO_MEM, MPI_Type_create_struct_c(n, one, at, types, &new));
    }
    return finish();
}
