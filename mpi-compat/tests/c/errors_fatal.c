/* The initial error handler ends the job.
   code any */
#include "check.h"

int main(void) {
    int size;
    MPI_Init(NULL, NULL);
    MPI_Type_size(MPI_DATATYPE_NULL, &size);
    printf("it went on\n");
    return 0;
}
