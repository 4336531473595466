/* MPI can be initialized only once. */
#include "check.h"

int main(void) {
    int provided;
    start();
    CHECK(MPI_Init(NULL, NULL) != MPI_SUCCESS);
    CHECK(MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS);
    return finish();
}
