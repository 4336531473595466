/* The order of basic types matters; their construction does not.
   ranks 2
   says VERIFY MPI_ALLGATHER(0): sendtype {3 elements, MPI_INT first} inconsistent with recvtype {3 elements, MPI_FLOAT first} of 1 */
#include "check.h"

int main(void) {
    double in[64] = {0}, out[64] = {0};
    MPI_Datatype one, other, parts[2] = {MPI_INT, MPI_FLOAT}, turned[2] = {MPI_FLOAT, MPI_INT};
    MPI_Aint places[2] = {0, 8}, apart[2] = {0, 16};
    int lengths[2] = {2, 1}, back[2] = {1, 2};
    start();
    MPI_Type_create_struct(2, lengths, places, parts, &one);
    if (IS_WRONG) MPI_Type_create_struct(2, back, apart, turned, &other);
    else MPI_Type_create_struct(2, lengths, apart, parts, &other);
    MPI_Type_commit(&one);
    MPI_Type_commit(&other);
    MPI_Allgather(in, 1, one, out, 1, rank == 0 ? one : other, MPI_COMM_WORLD);
    MPI_Type_free(&one);
    MPI_Type_free(&other);
    return finish();
}
