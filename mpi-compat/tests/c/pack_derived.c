/* Derived types are packed in the order of their type map, and unpacked into another layout of the same elements. */
#include "check.h"

int main(void) {
    int matrix[4][5], column[4] = {0}, back[4][5] = {{0}}, position = 0;
    char buffer[256];
    MPI_Datatype type;
    start();
    for (int i = 0; i < 20; i++) matrix[i / 5][i % 5] = i;
    OK(MPI_Type_vector(4, 1, 5, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Pack(&matrix[0][2], 1, type, buffer, sizeof buffer, &position, MPI_COMM_SELF));
    int end = position;
    position = 0;
    OK(MPI_Unpack(buffer, end, &position, column, 4, MPI_INT, MPI_COMM_SELF));
    for (int i = 0; i < 4; i++) printf("%d ", column[i]);
    printf("\n");
    position = 0;
    OK(MPI_Unpack(buffer, end, &position, &back[0][2], 1, type, MPI_COMM_SELF));
    for (int i = 0; i < 20; i++) CHECK(back[i / 5][i % 5] == (i % 5 == 2 ? i : 0));
    OK(MPI_Type_free(&type));
    return finish();
}
