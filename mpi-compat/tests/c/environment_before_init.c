/* A call before MPI_Init ends the program.
   code any */
#include "check.h"

int main(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("it went on\n");
    return 0;
}
