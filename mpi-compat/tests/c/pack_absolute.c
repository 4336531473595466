/* With MPI_BOTTOM the displacements are addresses; negative lower bounds reach before the buffer. */
#include "check.h"

int main(void) {
    int a[4] = {1, 2, 3, 4}, b[3] = {0}, position = 0;
    short s = 9, t = 0;
    char buffer[64];
    MPI_Aint places[2];
    MPI_Datatype type, before;
    start();
    OK(MPI_Get_address(&a[1], &places[0]));
    OK(MPI_Get_address(&s, &places[1]));
    OK(MPI_Type_create_struct(2, (int[]){2, 1}, places, (MPI_Datatype[]){MPI_INT, MPI_SHORT}, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Pack(MPI_BOTTOM, 1, type, buffer, sizeof buffer, &position, MPI_COMM_SELF));
    int end = position;
    position = 0;
    OK(MPI_Unpack(buffer, end, &position, b, 2, MPI_INT, MPI_COMM_SELF));
    OK(MPI_Unpack(buffer, end, &position, &t, 1, MPI_SHORT, MPI_COMM_SELF));
    CHECK(b[0] == 2 && b[1] == 3 && t == 9);
    OK(MPI_Type_free(&type));

    OK(MPI_Type_indexed(2, (int[]){1, 1}, (int[]){-2, 0}, MPI_INT, &before));
    OK(MPI_Type_commit(&before));
    position = 0;
    OK(MPI_Pack(&a[3], 1, before, buffer, sizeof buffer, &position, MPI_COMM_SELF));
    end = position;
    position = 0;
    OK(MPI_Unpack(buffer, end, &position, b, 2, MPI_INT, MPI_COMM_SELF));
    CHECK(b[0] == 2 && b[1] == 4);
    OK(MPI_Type_free(&before));
    return finish();
}
