/* Different constructors give the same signature.
   ranks 2
   says VERIFY MPI_REDUCE(1): datatype {4 MPI_INT} inconsistent with datatype {4 MPI_FLOAT} of 0 */
#include "check.h"

int main(void) {
    double in[64] = {0}, out[64] = {0};
    MPI_Datatype one, other;
    int back[2] = {1, 2};
    start();
    MPI_Type_contiguous(2, MPI_INT, &one);
    MPI_Type_create_resized(one, 0, 32, &other);
    MPI_Type_free(&one);
    MPI_Type_dup(other, &one);
    MPI_Type_commit(&one);
    MPI_Type_commit(&other);
    int sizes[2] = {4, 4}, subs[2] = {2, 2}, starts[2] = {1, 1};
    MPI_Datatype more[4];
    MPI_Type_create_subarray(2, sizes, subs, starts, MPI_ORDER_C, MPI_INT, &more[0]);
    MPI_Type_indexed(2, back, (int[]){3, 0}, MPI_INT, &more[1]);
    MPI_Type_create_hvector(2, 1, 64, one, &more[2]);
    MPI_Type_contiguous_c(4, MPI_INT, &more[3]);
    for (int i = 0; i < 4; i++) {
        MPI_Type_commit(&more[i]);
        MPI_Bcast(in, rank == 0 ? (i == 1 ? 3 : 4) : 1, rank == 0 ? MPI_INT : more[i], 0, MPI_COMM_WORLD);
        MPI_Type_free(&more[i]);
    }
    MPI_Reduce(in, out, 4, WRONG_AT(0, MPI_FLOAT, MPI_INT), MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Type_free(&one);
    MPI_Type_free(&other);
    return finish();
}
