/* The processor has a name of the reported length. */
#include "check.h"

int main(void) {
    char name[MPI_MAX_PROCESSOR_NAME];
    int length = -1;
    start();
    OK(MPI_Get_processor_name(name, &length));
    CHECK(length > 0 && length < MPI_MAX_PROCESSOR_NAME && (size_t)length == strlen(name));
    return finish();
}
