/* The same before MPI_Init, with the error handler that ends the program.
   code any
   says another error while the process exits with code
   not on peers: what they do is not promised */
#include "check.h"

static void err(void) {
    MPI_Datatype type = MPI_INT;
    MPI_Type_free(&type);
}

int main(void) {
    atexit(err);
    err();
    return 0;
}
