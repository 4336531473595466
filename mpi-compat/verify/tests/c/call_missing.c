/* If a rank does not make a call, the others report that they wait for it.
   ranks 3
   level 1
   env FARSIDE_STALL_S=0.2
   says VERIFY MPI_BARRIER(0): waits for the call of 2
   says VERIFY MPI_BARRIER(1): waits for the call of 2 */
#include "check.h"
#include <unistd.h>

int main(void) {
    start();
    if (WRONG_AT(2, 1, 0)) sleep(1);
    MPI_Barrier(MPI_COMM_WORLD);
    handled = IS_WRONG;
    return finish();
}
