/* Memory from MPI_Alloc_mem can be written, and freed. */
#include "check.h"

int main(void) {
    char *memory = NULL;
    start();
    OK(MPI_Alloc_mem(4096, MPI_INFO_NULL, &memory));
    CHECK(memory != NULL);
    memset(memory, 1, 4096);
    OK(MPI_Free_mem(memory));
    CHECK(MPI_Alloc_mem(-1, MPI_INFO_NULL, &memory) != MPI_SUCCESS);
    return finish();
}
