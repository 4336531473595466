/* Gets from a vector at the target into contiguous memory, and from contiguous memory into a vector.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int got[6], spread[6] = {-1, -1, -1, -1, -1, -1}, *memory = begin(12);
    MPI_Datatype second;
    OK(MPI_Type_vector(3, 1, 2, MPI_INT, &second));
    OK(MPI_Type_commit(&second));
    for (int i = 0; i < 12; i++) memory[i] = 100 * me + i;
    FENCE();
    OK(MPI_Get(got, 6, MPI_INT, right(), 0, 2, second, win));
    OK(MPI_Get(spread, 1, second, right(), 9, 3, MPI_INT, win));
    FENCE();
    /* The second vector begins where the first one ends: after its last element. */
    int places[6] = {0, 2, 4, 5, 7, 9};
    for (int i = 0; i < 6; i++) CHECK(got[i] == 100 * right() + places[i]);
    for (int i = 0; i < 6; i++) CHECK(spread[i] == (i % 2 ? -1 : 100 * right() + 9 + i / 2));
    OK(MPI_Type_free(&second));
    return done();
}
