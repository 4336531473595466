/* Only one rank has operations; the others see them after the fence.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    int values[6] = {1, 2, 3, 4, 5, 6}, *memory = begin(6);
    FENCE();
    if (me == size - 1)
        for (int rank = 0; rank < size; rank++) PUT(values, 6, rank, 0);
    FENCE();
    for (int i = 0; i < 6; i++) CHECK(memory[i] == i + 1);
    return done();
}
