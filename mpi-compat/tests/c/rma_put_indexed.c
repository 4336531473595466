/* Blocks at any offsets, in any order, on both sides.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int values[8], *memory = begin(20), here[4] = {6, 0, 4, 2}, there[4] = {18, 3, 9, 0};
    MPI_Datatype from, to;
    OK(MPI_Type_create_indexed_block(4, 2, here, MPI_INT, &from));
    OK(MPI_Type_create_indexed_block(4, 2, there, MPI_INT, &to));
    OK(MPI_Type_commit(&from));
    OK(MPI_Type_commit(&to));
    for (int i = 0; i < 8; i++) values[i] = 10 * me + i;
    FENCE();
    OK(MPI_Put(values, 1, from, right(), 0, 1, to, win));
    FENCE();
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 2; j++) {
            CHECK(memory[there[i] + j] == 10 * left() + here[i] + j);
            memory[there[i] + j] = -1;
        }
    for (int i = 0; i < 20; i++) CHECK(memory[i] == -1);
    OK(MPI_Type_free(&from));
    OK(MPI_Type_free(&to));
    return done();
}
