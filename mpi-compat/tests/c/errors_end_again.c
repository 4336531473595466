/* An error in an exit handler, while MPI_Abort ends the process, is said, and the process ends with the first code. What
   the program has printed is not lost.
   ranks 1 2
   code 7
   says another error while the process exits with code 7
   not on peers: what they do is not promised */
#include "check.h"

static void err(void) {
    MPI_Datatype type = MPI_INT;
    printf("the exit handler runs\n");
    MPI_Type_free(&type);
}

int main(void) {
    MPI_Init(NULL, NULL);
    atexit(err);
    atexit(err);
    MPI_Abort(MPI_COMM_WORLD, 7);
    return 0;
}
