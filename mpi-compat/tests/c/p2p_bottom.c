/* Absolute addresses and MPI_BOTTOM.
   ranks 2 */
#include "check.h"

int main(void) {
    int a = 1, b[3] = {2, 3, 4}, lens[] = {1, 3};
    double d = 0.5;
    MPI_Aint at[3];
    MPI_Datatype types[] = {MPI_INT, MPI_INT}, type, whole;
    start();
    int me = rank_of(MPI_COMM_WORLD);
    OK(MPI_Get_address(&a, &at[0]));
    OK(MPI_Get_address(b, &at[1]));
    OK(MPI_Type_create_struct(2, lens, at, types, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Get_address(&d, &at[2]));
    OK(MPI_Type_create_hindexed(1, lens, &at[2], MPI_DOUBLE, &whole));
    OK(MPI_Type_commit(&whole));
    if (me == 0) {
        OK(MPI_Send(MPI_BOTTOM, 1, type, 1, 0, MPI_COMM_WORLD));
        OK(MPI_Send(MPI_BOTTOM, 1, whole, 1, 0, MPI_COMM_WORLD));
    } else {
        a = b[0] = b[1] = b[2] = 0;
        d = 0;
        OK(MPI_Recv(MPI_BOTTOM, 1, type, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Recv(MPI_BOTTOM, 1, whole, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(a == 1 && b[0] == 2 && b[1] == 3 && b[2] == 4 && d == 0.5);
    }
    OK(MPI_Type_free(&type));
    OK(MPI_Type_free(&whole));
    return finish();
}
