/* MPI_Abort ends the job with the code.
   code 7 */
#include "check.h"

int main(void) {
    start();
    MPI_Abort(MPI_COMM_WORLD, 7);
    return 0;
}
