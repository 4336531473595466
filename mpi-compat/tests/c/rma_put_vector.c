/* A vector at the target: every third integer; the integers between stay unchanged.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int values[5], *memory = begin(15);
    MPI_Datatype third;
    OK(MPI_Type_vector(5, 1, 3, MPI_INT, &third));
    OK(MPI_Type_commit(&third));
    for (int i = 0; i < 5; i++) values[i] = 10 * me + i;
    FENCE();
    OK(MPI_Put(values, 5, MPI_INT, right(), 1, 1, third, win));
    FENCE();
    for (int i = 0; i < 15; i++) CHECK(memory[i] == (i % 3 == 1 ? 10 * left() + i / 3 : -1));
    OK(MPI_Type_free(&third));
    return done();
}
